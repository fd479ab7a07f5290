/* tree: sums go up a binary tree, the result comes down: 2 log2 n steps of latency where the
 * ring has 2(n-1). In one tree the leaves would idle while inner ranks do all the work, so there
 * are two trees, each with half of the data, and a rank that is inside one is a leaf of the
 * other (Sanders, Speck, Traeff 2009).
 *
 *     tree A, 8 ranks                          tree B, 8 ranks: A in the mirror (r -> 7 - r)
 *
 *     0                                        7
 *     +------- 4                               +------- 3
 *          /       \                                /       \
 *         2         6                              5         1
 *        / \       / \                            / \       / \
 *       1   3     5   7                          6   4     2   0
 *
 * Tree A is read off the bits of the rank: a rank whose lowest set bit is b lies at the height
 * of b; its parent has that bit cleared and the next one set, or where no such rank exists only
 * cleared. Tree B is the mirror image for even n; for odd n, where a mirror would map the middle
 * onto itself, all roles are shifted by one rank.
 *
 * Up, per slice: a parent adds its children's sums, read where they lie in the children's data,
 * to its own. Down, per slice: a parent writes the result into its children's data. The root has
 * one child and adds and writes in one step (REDUCE_COPY). No scratch.
 *
 * Flags (A and B have their own)   written by   read by      meaning
 *   up,   epoch s + 1              a rank       its parent   slice s of my data is my subtree's sum
 *                                                            (a leaf's sum is its input: at once epoch m)
 *   down, epoch s + 1              a parent     each child   slice s of your data is the result
 *
 * Epochs: m slices, 1 .. m.
 *
 * Early overwriting: a child's slice is written by its parent alone, which before has read it
 * itself, and which may do both since the child has said "up" and keeps off until "down". A rank
 * leaves when it has "down" for every slice (so its parent has done all it will do) and has
 * written to its children (its children never touch its data).
 *
 * Order within a rank: slice k of A and B up, then slice k - lag of A and B down, k = 0, 1, ...:
 * while slices climb, earlier ones descend. No deadlock: order all steps by (k; A up from the
 * leaves, B up, A down from the root, B down), after the leaves' first word; each waits only for
 * steps before it. */
#include "allreduce/plan.h"

/* The parent of `role` in tree A over n ranks; -1 for role 0. */
static int bit_parent(int n, int role) {
    if (role == 0) return -1;
    int bit = role & -role, above = (role ^ bit) | bit << 1;
    return above < n ? above : role ^ bit;
}

/* Tree B is tree A with the ranks in other roles; to_role undoes to_rank. */
static int to_role(int which, int n, int rank) {
    return which == 0 ? rank : n % 2 == 0 ? n - 1 - rank : (rank + n - 1) % n;
}

static int to_rank(int which, int n, int role) {
    return which == 0 ? role : n % 2 == 0 ? n - 1 - role : (role + 1) % n;
}

struct tree_node plan_tree_node(int which, int n, int rank) {
    int role = to_role(which, n, rank), parent = bit_parent(n, role);
    struct tree_node node = {.parent = parent < 0 ? -1 : to_rank(which, n, parent)};
    for (int other = 1; other < n; other++)
        if (bit_parent(n, other) == role) node.child[node.children++] = to_rank(which, n, other);
    return node;
}

struct tree_pass {
    struct tree_node node;
    struct range half;
    int slices, up, down; /* enum plan_flag */
    uint64_t children;    /* set of ranks */
    int leaf_child[2];
};

static struct plan_step slice_step(const struct plan *plan, const struct plan_config *config,
                                   const struct tree_pass *t, int k) {
    struct range slice = range_part(t->half, t->slices, k, config->align);
    struct plan_step step = {.source_buffer = PLAN_DATA,
                             .source_rank = (int16_t)plan->rank,
                             .source_offset = slice.offset,
                             .dest_buffer = PLAN_DATA,
                             .dest_ranks = rank_bit(plan->rank),
                             .dest_offset = slice.offset,
                             .length = slice.length};
    return step;
}

static void post(struct plan_step *step, uint64_t ranks, int kind, int epoch) {
    step->post_ranks = ranks;
    step->post_kind = (uint8_t)kind;
    step->post_epoch = (uint32_t)epoch;
}

static void await(struct plan_step *step, int rank, int kind, int epoch) {
    step->wait_ranks = rank_bit(rank);
    step->wait_kind = (uint8_t)kind;
    step->wait_epoch = (uint32_t)epoch;
}

/* A leaf's sums are its input: all its slices are ready at once, before anything else is done. */
static void leaf_ready(struct plan *plan, const struct tree_pass *t) {
    if (t->node.children > 0) return;
    struct plan_step ready = {.op = PLAN_NONE};
    post(&ready, rank_bit(t->node.parent), t->up, t->slices);
    plan_add(plan, &ready);
}

static void go_up(struct plan *plan, const struct plan_config *config, const struct tree_pass *t,
                  int k) {
    for (int c = 0; c < t->node.children; c++) {
        struct plan_step add = slice_step(plan, config, t, k);
        int last = c == t->node.children - 1, child = t->node.child[c];
        add.op = PLAN_REDUCE;
        add.source_rank = (int16_t)child;
        add.scale = (c == 0 ? PLAN_SCALE_DEST : 0) | (t->leaf_child[c] ? PLAN_SCALE_SOURCE : 0);
        if (!t->leaf_child[c]) await(&add, child, t->up, k + 1);
        if (t->leaf_child[c] && k == 0) await(&add, child, t->up, t->slices);
        if (last && t->node.parent >= 0) post(&add, rank_bit(t->node.parent), t->up, k + 1);
        if (last && t->node.parent < 0) {
            add.op = PLAN_REDUCE_COPY;
            add.dest_ranks |= t->children;
            post(&add, t->children, t->down, k + 1);
        }
        plan_add(plan, &add);
    }
}

static void go_down(struct plan *plan, const struct plan_config *config, const struct tree_pass *t,
                    int k) {
    if (t->node.parent < 0) return; /* the root wrote the slice on its way up */
    if (t->node.children == 0) {    /* a leaf: only the end concerns it */
        struct plan_step done = {.op = PLAN_NONE};
        await(&done, t->node.parent, t->down, t->slices);
        if (k == t->slices - 1) plan_add(plan, &done);
        return;
    }
    struct plan_step give = slice_step(plan, config, t, k);
    give.op = PLAN_COPY;
    give.dest_ranks = t->children;
    await(&give, t->node.parent, t->down, k + 1);
    post(&give, t->children, t->down, k + 1);
    plan_add(plan, &give);
}

void plan_tree(struct plan *plan, const struct plan_config *config) {
    int n = plan->n, trees = 0, lag = 0;
    while (1 << lag < n)
        lag++;
    struct range whole = {0, plan->count};
    struct tree_pass pass[2];
    for (int which = 0; which < 2; which++) {
        struct tree_pass *t = &pass[which];
        struct range half = range_part(whole, 2, which, config->align);
        if (half.length == 0) break; /* tiny data: tree A takes it all */
        trees++;
        *t =
            (struct tree_pass){.node = plan_tree_node(which, n, plan->rank),
                               .half = half,
                               .slices = plan_slices(config, plan->count,
                                                     range_part(whole, 2, 0, config->align).length),
                               .up = which == 0 ? PLAN_UP_A : PLAN_UP_B,
                               .down = which == 0 ? PLAN_DOWN_A : PLAN_DOWN_B};
        for (int c = 0; c < t->node.children; c++) {
            t->children |= rank_bit(t->node.child[c]);
            t->leaf_child[c] = plan_tree_node(which, n, t->node.child[c]).children == 0;
        }
    }
    int slices = pass[0].slices;
    plan->epochs = (uint32_t)slices;
    for (int which = 0; which < trees; which++)
        leaf_ready(plan, &pass[which]);
    for (int k = 0; k < slices + lag; k++) {
        for (int which = 0; which < trees && k < slices; which++)
            go_up(plan, config, &pass[which], k);
        for (int which = 0; which < trees && k >= lag; which++)
            go_down(plan, config, &pass[which], k - lag);
    }
}
