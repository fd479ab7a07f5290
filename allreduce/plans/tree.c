/* tree: partial sums go up a binary tree to its root, and the result goes down again. That takes 2
 * log2 n waits one after another; the ring takes 2(n-1). In a single tree the leaves would idle
 * while the inner ranks do all the work. So the plan uses two trees, each for half of the data, and
 * a rank that is an inner node in one is a leaf in the other (Sanders, Speck, Traeff 2009).
 *
 *     tree A, 8 ranks                           tree B, 8 ranks: A in the mirror, r -> 7 - r
 *
 *          0                                         7
 *          |                                         |
 *          4                                         3
 *         / \                                       / \
 *        2   6                                     5   1
 *       / \ / \                                   / \ / \
 *      1  3 5  7                                 6  4 2  0
 *
 * The shape of tree A follows from the bits of the rank. A rank whose lowest set bit is b is at the
 * height of b. Its parent has bit b cleared and the next higher bit set; if no such rank exists,
 * only bit b is cleared. Tree B is the mirror image of A for even n. For odd n a mirror would map
 * the middle rank onto itself, so for odd n every rank takes the role of its left neighbour.
 *
 * Up, slice by slice: a parent reads its children's sums in place, in the children's data, and adds
 * them to its own. Down, slice by slice: a parent writes the result into its children's data. The
 * root has one child; it adds and writes in one step (REDUCE_COPY). No scratch is needed.
 *
 * Flags (each tree has its own)    written by   read by      meaning
 *   up,   epoch s + 1              a rank       its parent   slice s of my data is my subtree's sum
 *   up,   epoch m                  a leaf       its parent   all m slices: my input is my sum
 *   down, epoch s + 1              a parent     each child   slice s of your data is the result
 *
 * Epochs: 1 .. m, for the m slices of a half.
 *
 * Early overwriting. Only its parent writes a child's slice, after it has read that slice. The
 * child does not touch the slice between up and down. A rank leaves when it has seen `down` for
 * every slice, so its parent has finished with it, and when it has written to its children.
 * Children never touch its data.
 *
 * Order within a rank: slice k of A and of B go up, then slice k - lag of A and of B go down, for k
 * = 0, 1, ... So earlier slices descend while later ones climb. No deadlock can occur: put all
 * leaves' first posts in front, and order the other steps of all ranks by k, then A up (from the
 * leaves), B up, A down (from the root), B down. Then each step awaits only earlier steps. */
#include "allreduce/plans/steps.h"

/* ---- the shape ---- */

/* The parent of `role` in tree A over n ranks; -1: the root. */
static int parent_role(int n, int role) {
    if (role == 0) return -1;
    int bit = role & -role, below = role ^ bit, above = below | bit << 1;
    return above < n ? above : below;
}

/* In tree B each rank plays the role that another rank has in tree A. */
static int to_role(int which, int n, int rank) {
    if (which == 0) return rank;
    return n % 2 == 0 ? n - 1 - rank : (rank + n - 1) % n;
}

static int to_rank(int which, int n, int role) {
    if (which == 0) return role;
    return n % 2 == 0 ? n - 1 - role : (role + 1) % n;
}

struct tree_node plan_tree_node(int which, int n, int rank) {
    int role = to_role(which, n, rank), parent = parent_role(n, role);
    struct tree_node node = {.parent = parent < 0 ? -1 : to_rank(which, n, parent)};
    for (int other = 1; other < n; other++)
        if (parent_role(n, other) == role) node.child[node.children++] = to_rank(which, n, other);
    return node;
}

/* ---- the steps of one rank in one tree ---- */

struct tree {
    struct plan *plan;
    struct tree_node node;
    struct range half;
    int slices; /* m: the same in both trees, whose halves may differ in length */
    size_t align;
    enum plan_flag up, down;
    uint64_t children; /* set of ranks */
    int leaf_child[2]; /* 1: child [c] is a leaf */
};

static int is_root(const struct tree *t) {
    return t->node.parent < 0;
}

static int is_leaf(const struct tree *t) {
    return t->node.children == 0;
}

static struct range slice_at(const struct tree *t, int k) {
    return range_part(t->half, t->slices, k, t->align);
}

/* A leaf's sum is its input: all slices of it are ready at once. */
static void leaf_ready(const struct tree *t) {
    if (is_leaf(t)) add_post(t->plan, rank_bit(t->node.parent), t->up, (size_t)t->slices);
}

/* A leaf has posted all its slices at once, so only the first slice waits for it. */
static void await_child(const struct tree *t, struct plan_step *step, int c, int k) {
    uint64_t child = rank_bit(t->node.child[c]);
    if (!t->leaf_child[c])
        await(step, child, t->up, (size_t)k + 1);
    else if (k == 0)
        await(step, child, t->up, (size_t)t->slices);
}

/* Own slice k += each child's, one step for each child. The last of them completes the slice: its
 * parent may take it, or the root writes the result down. */
static void go_up(const struct tree *t, int k) {
    for (int c = 0; c < t->node.children; c++) {
        struct plan_step add =
            reduce_from(t->node.child[c], slice_at(t, k), rank_bit(t->plan->rank));
        if (c == 0) add.scale |= PLAN_SCALE_DEST;
        if (t->leaf_child[c]) add.scale |= PLAN_SCALE_SOURCE;
        await_child(t, &add, c, k);
        int complete = c == t->node.children - 1;
        if (complete && is_root(t)) {
            add.op = PLAN_REDUCE_COPY;
            add.dest_ranks |= t->children;
            post(&add, t->children, t->down, (size_t)k + 1);
        } else if (complete) {
            post(&add, rank_bit(t->node.parent), t->up, (size_t)k + 1);
        }
        add_step(t->plan, add);
    }
}

/* Slice k of the result has arrived from the parent and goes on to the children. The root has
 * written it already; a leaf hands nothing on and waits for the last slice only. */
static void go_down(const struct tree *t, int k) {
    if (is_root(t)) return;
    uint64_t parent = rank_bit(t->node.parent);
    if (is_leaf(t)) {
        if (k == t->slices - 1) add_await(t->plan, parent, t->down, (size_t)k + 1);
        return;
    }
    struct plan_step give = copy_from(t->plan->rank, slice_at(t, k), t->children);
    await(&give, parent, t->down, (size_t)k + 1);
    post(&give, t->children, t->down, (size_t)k + 1);
    add_step(t->plan, give);
}

/* ---- both trees ---- */

/* The rank's part in tree `which`. Tree A has the first half, which is never the shorter one. */
static struct tree tree_of(struct plan *plan, const struct plan_config *config, int which) {
    struct range whole = {0, plan->count}, first_half = range_part(whole, 2, 0, config->align);
    struct tree t = {
        .plan = plan,
        .node = plan_tree_node(which, plan->n, plan->rank),
        .half = range_part(whole, 2, which, config->align),
        .slices = plan_slices(config, plan->count, first_half.length),
        .align = config->align,
        .up = which == 0 ? PLAN_UP_A : PLAN_UP_B,
        .down = which == 0 ? PLAN_DOWN_A : PLAN_DOWN_B,
    };
    for (int c = 0; c < t.node.children; c++) {
        t.children |= rank_bit(t.node.child[c]);
        t.leaf_child[c] = plan_tree_node(which, plan->n, t.node.child[c]).children == 0;
    }
    return t;
}

void plan_tree(struct plan *plan, const struct plan_config *config) {
    struct tree tree[2] = {tree_of(plan, config, 0), tree_of(plan, config, 1)};
    int trees = tree[1].half.length > 0 ? 2 : 1; /* tree A takes all if they are few */
    int slices = tree[0].slices, lag = 0;        /* lag: the height of the trees */
    while (1 << lag < plan->n)
        lag++;
    plan->epochs = (uint32_t)slices;

    for (int which = 0; which < trees; which++)
        leaf_ready(&tree[which]);
    for (int k = 0; k < slices + lag; k++) {
        for (int which = 0; which < trees && k < slices; which++)
            go_up(&tree[which], k);
        for (int which = 0; which < trees && k >= lag; which++)
            go_down(&tree[which], k - lag);
    }
}
