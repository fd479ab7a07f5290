/* ring: the data is cut into n chunks, and each chunk travels around the ring twice: once
 * collecting every rank's term (reduce-scatter), once handing out the result (all-gather). Every
 * rank moves 2(n-1)/n S bytes in, all of it from its left neighbour: the least where each pair
 * of neighbours has a link of its own.
 *
 *          +-->  0  -->  1  -->  2  -->  3  --+        each rank reads from its left neighbour only
 *          +----------------------------------+
 *
 *     chunk c, n = 4         hop 1         hop 2         hop 3         hop 4    hop 5    hop 6
 *     rank   c: x_c  ---> c+1: +x  ---> c+2: +x  ---> c+3: +x  ---> c: = ---> c+1: = ---> c+2: =
 *              (hop 0)     (reduce-scatter, hops 1 .. n-1)         (all-gather, hops n .. 2n-2)
 *
 * At hop h rank r works on chunk (r - h) mod n, which its left neighbour worked on at hop h-1:
 * it adds the left neighbour's partial sum to its own term, in its own data, or copies the
 * result. It reads the neighbour's data where it lies (a pull), so there is no scratch and no
 * queue to fill.
 *
 * Pipelining: a chunk is cut into m slices with a flag value each, so that the right neighbour
 * starts on slice 0 of hop h+1 while slice 1 of hop h is still being added. Between 1 and m
 * slices are then under way per rank.
 *
 * Flags                          written by   read by   meaning
 *   slice, epoch h m + s + 1     rank r       r + 1     slice s of hop h lies in my data: take it
 *                                                       (hop 0, my own term, is there at once: epoch m)
 *   done,  epoch 1               rank r       r - 1     I have read all I need of your data
 *
 * Epochs: hops 0 .. 2n-3 are read by somebody, m slices each, hence (2n-2) m in all.
 *
 * Early overwriting, within the call: rank r writes chunk c twice, its partial sum at one hop
 * and the result n hops later. The reader of the partial sum is r + 1, and that reading is one
 * link of the chain that made the result which now comes around: it is over. Slices keep apart,
 * so this holds for each by itself. At the end: r leaves after done from r + 1, the only one who
 * reads its data. */
#include "allreduce/plan.h"

void plan_ring(struct plan *plan, const struct plan_config *config) {
    int n = plan->n, r = plan->rank, left = (r + n - 1) % n, right = (r + 1) % n;
    struct range whole = {0, plan->count};
    int m = plan_slices(config, plan->count, range_part(whole, n, 0, config->align).length);
    int hops = 2 * n - 2;
    plan->epochs = (uint32_t)(hops * m);

    struct plan_step own = {
        .post_ranks = rank_bit(right), .post_kind = PLAN_SLICE, .post_epoch = (uint32_t)m};
    plan_add(plan, &own);
    for (int h = 1; h <= hops; h++) {
        struct range chunk = range_part(whole, n, ((r - h) % n + n) % n, config->align);
        for (int s = 0; s < m; s++) {
            struct range slice = range_part(chunk, m, s, config->align);
            struct plan_step step = {.op = h < n ? PLAN_REDUCE : PLAN_COPY,
                                     .source_buffer = PLAN_DATA,
                                     .source_rank = (int16_t)left,
                                     .source_offset = slice.offset,
                                     .dest_buffer = PLAN_DATA,
                                     .dest_ranks = rank_bit(r),
                                     .dest_offset = slice.offset,
                                     .length = slice.length};
            if (h < n) step.scale = PLAN_SCALE_DEST | (h == 1 ? PLAN_SCALE_SOURCE : 0);
            if (h > 1 || s == 0) {
                step.wait_ranks = rank_bit(left);
                step.wait_kind = PLAN_SLICE;
                step.wait_epoch = (uint32_t)(h == 1 ? m : (h - 1) * m + s + 1);
            }
            if (h < hops) {
                step.post_ranks = rank_bit(right);
                step.post_kind = PLAN_SLICE;
                step.post_epoch = (uint32_t)(h * m + s + 1);
            } else if (s == m - 1) {
                step.post_ranks = rank_bit(left);
                step.post_kind = PLAN_DONE;
                step.post_epoch = 1;
            }
            plan_add(plan, &step);
        }
    }
    struct plan_step done = {
        .wait_ranks = rank_bit(right), .wait_kind = PLAN_DONE, .wait_epoch = 1};
    plan_add(plan, &done);
}
