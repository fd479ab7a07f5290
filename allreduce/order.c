/* The order in which ring and tree add, written a second time without their plans. single and DP
 * add in this order, so their results check the plans. plans/ring.c and plans/tree.c have the
 * drawings. */
#include "allreduce/plans/steps.h"
#include "base/error.h"

/* Joins the partial sums at terms a and b. Returns the position of the result. */
static int add(struct sum_order *order, int *additions, int a, int b) {
    int to = a < b ? a : b, from = a < b ? b : a;
    order->add[(*additions)++] = (struct addition){(uint8_t)to, (uint8_t)from};
    return to;
}

/* A rank adds its first child's sum to its own term, then the second's. Returns the result's
 * place. */
static int add_subtree(struct sum_order *order, int *additions, int which, int rank) {
    const struct tree_node node = plan_tree_node(which, order->n, rank);
    int sum = rank;
    for (int c = 0; c < node.children; c++)
        sum = add(order, additions, sum, add_subtree(order, additions, which, node.child[c]));
    return sum;
}

int plan_order(enum allreduce_algorithm algorithm, int n, size_t count, size_t at,
               struct sum_piece *piece) {
    const struct range whole = {0, count};
    const size_t align = plan_config_default().align;
    struct range part;
    int parts = algorithm == ALLREDUCE_RING ? n : 2, i = 0, additions = 0;
    do /* chunks of a ring, halves of two trees */
        part = range_part(whole, parts, i, align);
    while (at >= part.offset + part.length && ++i < parts);
    *piece = (struct sum_piece){at, part.offset + part.length - at, {.n = n}};
    if (algorithm == ALLREDUCE_RING) {
        for (int k = 1, sum = i; k < n; k++)
            sum = add(&piece->order, &additions, sum, (i + k) % n);
        return OK;
    }
    for (int root = 0; root < n && algorithm == ALLREDUCE_TREE; root++)
        if (plan_tree_node(i, n, root).parent < 0) add_subtree(&piece->order, &additions, i, root);
    return additions == n - 1 ? OK
                              : fail(ERR_FAILED, "order of %s over %d ranks: not defined",
                                     allreduce_algorithm_name(algorithm), n);
}
