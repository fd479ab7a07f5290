/* ring: the data are cut into n chunks, and each chunk travels around the ring twice. First it
 * collects every rank's term (reduce-scatter), then it distributes the result (all-gather). Each
 * rank reads 2(n-1)/n S bytes, all from its left neighbour. That is the minimum if each pair of
 * neighbours has its own link.
 *
 *     +-->  0  -->  1  -->  2  -->  3  --+         each rank reads from its left neighbour only
 *     +----------------------------------+
 *
 * The path of chunk c over n = 4 ranks:
 *
 *     hop     0        1        2        3        4        5        6
 *     rank    c       c+1      c+2      c+3       c       c+1      c+2
 *             own --> add ---> add ---> add ---> copy --> copy --> copy
 *             |------ reduce-scatter ------|     |----- all-gather ----|
 *
 * Seen from rank r: at hop h it works on chunk (r - h) mod n, which its left neighbour worked on at
 * hop h - 1. It adds the neighbour's partial sum to its own term, or copies the neighbour's result,
 * in its own data. It reads the neighbour's data in place, so it needs no scratch.
 *
 * Pipelining. A chunk is cut into m slices, and each slice has its own post. So the right neighbour
 * starts slice 0 of hop h + 1 while slice 1 of hop h is still being added here.
 *
 * Flags                           written by   read by   meaning
 *   slice, epoch h m + s + 1      rank r       r + 1     slice s of hop h is in my data
 *   slice, epoch m                rank r       r + 1     all slices of hop 0, which is my own term
 *   done,  epoch 1                rank r       r - 1     I have read all I need of your data
 *
 * Epochs: some rank reads each of hops 0 .. 2n-3, m slices each, so a call takes (2n-2) m.
 *
 * Early overwriting. Rank r writes a chunk twice: its partial sum, and n hops later the result.
 * Rank r + 1 reads the partial sum. The result was made from that read, so the read is over when
 * the result arrives. Slices never mix, so this holds for each of them. At the end of the call r
 * waits for done from r + 1, the only rank that reads its data. */
#include "allreduce/plans/steps.h"

struct ring {
    struct plan *plan;
    int n, rank, left, right;
    int slices; /* m: slices in each chunk */
    size_t align;
};

static int last_hop(const struct ring *ring) {
    return 2 * ring->n - 2;
}

/* Slice s of the chunk that this rank works on at hop h. */
static struct range slice_at(const struct ring *ring, int h, int s) {
    struct range whole = {0, ring->plan->count};
    int chunk = (ring->rank + 2 * ring->n - h) % ring->n;
    return range_part(range_part(whole, ring->n, chunk, ring->align), ring->slices, s, ring->align);
}

static size_t slice_epoch(const struct ring *ring, int h, int s) {
    return (size_t)h * (size_t)ring->slices + (size_t)s + 1;
}

/* The left neighbour has slice s of hop h. Its hop 0 is one post for the whole chunk, so the
 * first slice waits for that and the others need not. */
static void await_slice(const struct ring *ring, struct plan_step *step, int h, int s) {
    if (h > 0)
        await(step, rank_bit(ring->left), PLAN_SLICE, slice_epoch(ring, h, s));
    else if (s == 0)
        await(step, rank_bit(ring->left), PLAN_SLICE, (size_t)ring->slices);
}

/* The right neighbour may take slice s of hop h. Nobody takes the last hop's; its last slice tells
 * the left neighbour that all of its data has been read. */
static void post_slice(const struct ring *ring, struct plan_step *step, int h, int s) {
    if (h < last_hop(ring))
        post(step, rank_bit(ring->right), PLAN_SLICE, slice_epoch(ring, h, s));
    else if (s == ring->slices - 1)
        post(step, rank_bit(ring->left), PLAN_DONE, 1);
}

/* Own slice += the left neighbour's partial sum. At hop 1 that is its raw input. */
static void reduce_scatter(const struct ring *ring) {
    for (int h = 1; h < ring->n; h++) {
        for (int s = 0; s < ring->slices; s++) {
            struct plan_step add =
                reduce_from(ring->left, slice_at(ring, h, s), rank_bit(ring->rank));
            add.scale = PLAN_SCALE_DEST | (h == 1 ? PLAN_SCALE_SOURCE : 0);
            await_slice(ring, &add, h - 1, s);
            post_slice(ring, &add, h, s);
            add_step(ring->plan, add);
        }
    }
}

/* Own slice = the left neighbour's, which holds the result. */
static void all_gather(const struct ring *ring) {
    for (int h = ring->n; h <= last_hop(ring); h++) {
        for (int s = 0; s < ring->slices; s++) {
            struct plan_step take =
                copy_from(ring->left, slice_at(ring, h, s), rank_bit(ring->rank));
            await_slice(ring, &take, h - 1, s);
            post_slice(ring, &take, h, s);
            add_step(ring->plan, take);
        }
    }
}

void plan_ring(struct plan *plan, const struct plan_config *config) {
    int n = plan->n, rank = plan->rank;
    struct range whole = {0, plan->count}, longest_chunk = range_part(whole, n, 0, config->align);
    struct ring ring = {
        .plan = plan,
        .n = n,
        .rank = rank,
        .left = (rank + n - 1) % n,
        .right = (rank + 1) % n,
        .slices = plan_slices(config, plan->count, longest_chunk.length),
        .align = config->align,
    };
    plan->epochs = (uint32_t)(last_hop(&ring) * ring.slices);

    add_post(plan, rank_bit(ring.right), PLAN_SLICE, (size_t)ring.slices);
    reduce_scatter(&ring);
    all_gather(&ring);
    add_await(plan, rank_bit(ring.right), PLAN_DONE, 1);
}
