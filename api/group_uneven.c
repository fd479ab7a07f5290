/* Process groups: blocks of different lengths, and bytes of any length. */
#include <stddef.h>

#include "api/group_call.h"

_Static_assert(sizeof(struct duet_object) == sizeof(struct group_object) &&
                   offsetof(struct duet_object, bytes) == offsetof(struct group_object, bytes),
               "duet.h repeats it");

/* ---- splits: rows of dimension 0, as in PyTorch ---- */

/* The lengths in elements of a tensor's n parts. */
static int read_splits(const char *name, const char *which, const duet_tensor *tensor,
                       const int *splits, int n, size_t *sizes) {
    int rows = duet_tensor_dim(tensor, 0);
    size_t row = 1;
    long long sum = 0;
    for (int i = 1; i < duet_tensor_rank(tensor); i++)
        row *= (size_t)duet_tensor_dim(tensor, i);
    if (!splits && rows % n)
        return fail(ERR_USAGE,
                    "%s: %d rows of the %s tensor for %d ranks: give %s_split_sizes, or a multiple",
                    name, rows, which, n, which);
    for (int r = 0; r < n; r++) {
        int part = splits ? splits[r] : rows / n;
        if (part < 0)
            return fail(ERR_USAGE, "%s: %s_split_sizes[%d] is %d: give 0 or more", name, which, r,
                        part);
        sum += part;
        sizes[r] = (size_t)part * row;
    }
    if (sum == rows) return OK;
    return fail(ERR_USAGE,
                "%s: Split sizes doesn't match total dim 0 size: %s_split_sizes add up to %lld, "
                "and the tensor has %d rows",
                name, which, sum, rows);
}

/* The tensor that has one block: its length must be that of its split. */
static int check_block(const char *name, const char *which, const duet_tensor *one,
                       const char *of_which, size_t split) {
    if (tensor_count(&one->t) == split) return OK;
    return fail(ERR_USAGE, "%s: %s tensor of %zu elements, but %s_split_sizes give this rank %zu",
                name, which, tensor_count(&one->t), of_which, split);
}

/* Where parts move, input and output may not be one either. */
static int check_memory(const char *name, const char *which, const duet_tensor *other,
                        const duet_tensor *one) {
    CHECK(group_call_memory(name, which, other, one, -1));
    if (other->t.data != one->t.data || !tensor_bytes(&other->t) || !tensor_bytes(&one->t))
        return OK;
    return fail(ERR_USAGE, "%s: input and output overlap: copy one with duet_tensor_to first",
                name);
}

int duet_all_to_all_uneven(duet_group *group, duet_tensor *output, const duet_tensor *input,
                           const int *output_split_sizes, const int *input_split_sizes,
                           duet_work **work) {
    static const char name[] = "all_to_all";
    struct group_call call = {.what = COLLECTIVE_ALL_TO_ALL, .uneven = 1};
    size_t in[MAX_DEVICES], out[MAX_DEVICES];
    CHECK(group_call_begin(name, group, input, work, &call));
    CHECK(check_memory(name, "output", output, input));
    int n = duet_group_size(group), me = duet_group_rank(group);
    CHECK(read_splits(name, "input", input, input_split_sizes, n, in));
    CHECK(read_splits(name, "output", output, output_split_sizes, n, out));
    if (in[me] != out[me])
        return fail(ERR_USAGE,
                    "%s: rank %d gives itself %zu elements and expects %zu: the split sizes of the "
                    "two must be the same",
                    name, me, in[me], out[me]);
    call.input_sizes = in;
    call.output_sizes = out;
    return group_call_run(group, &call, output, input, NULL, work);
}

int duet_all_gather_uneven(duet_group *group, duet_tensor *output, const duet_tensor *input,
                           const int *output_split_sizes, duet_work **work) {
    static const char name[] = "all_gather";
    struct group_call call = {.what = COLLECTIVE_ALL_GATHER, .uneven = 1};
    size_t out[MAX_DEVICES];
    CHECK(group_call_begin(name, group, input, work, &call));
    CHECK(check_memory(name, "output", output, input));
    CHECK(read_splits(name, "output", output, output_split_sizes, duet_group_size(group), out));
    CHECK(check_block(name, "input", input, "output", out[duet_group_rank(group)]));
    call.output_sizes = out;
    return group_call_run(group, &call, output, input, NULL, work);
}

int duet_reduce_scatter_uneven(duet_group *group, duet_tensor *output, const duet_tensor *input,
                               const int *input_split_sizes, enum duet_reduction op,
                               duet_work **work) {
    static const char name[] = "reduce_scatter";
    struct group_call call = {.what = COLLECTIVE_REDUCE_SCATTER, .uneven = 1};
    size_t in[MAX_DEVICES];
    CHECK(group_call_begin(name, group, output, work, &call));
    CHECK(group_call_op(name, op, &call));
    CHECK(check_memory(name, "input", input, output));
    CHECK(read_splits(name, "input", input, input_split_sizes, duet_group_size(group), in));
    CHECK(check_block(name, "output", output, "input", in[duet_group_rank(group)]));
    call.input_sizes = in;
    return group_call_run(group, &call, output, input, NULL, work);
}

int duet_gather_uneven(duet_group *group, duet_tensor *output, const duet_tensor *input,
                       const int *output_split_sizes, int root, duet_work **work) {
    static const char name[] = "gather";
    struct group_call call = {.what = COLLECTIVE_GATHER, .uneven = 1, .root = root};
    size_t out[MAX_DEVICES];
    CHECK(group_call_begin(name, group, input, work, &call));
    if (duet_group_rank(group) != root)
        return group_call_run(group, &call, NULL, input, NULL, work);
    CHECK(check_memory(name, "output", output, input));
    CHECK(read_splits(name, "output", output, output_split_sizes, duet_group_size(group), out));
    CHECK(check_block(name, "input", input, "output", out[root]));
    call.output_sizes = out;
    return group_call_run(group, &call, output, input, NULL, work);
}

int duet_scatter_uneven(duet_group *group, duet_tensor *output, const duet_tensor *input,
                        const int *input_split_sizes, int root, duet_work **work) {
    static const char name[] = "scatter";
    struct group_call call = {.what = COLLECTIVE_SCATTER, .uneven = 1, .root = root};
    size_t in[MAX_DEVICES];
    CHECK(group_call_begin(name, group, output, work, &call));
    if (duet_group_rank(group) != root)
        return group_call_run(group, &call, output, NULL, NULL, work);
    CHECK(check_memory(name, "input", input, output));
    CHECK(read_splits(name, "input", input, input_split_sizes, duet_group_size(group), in));
    CHECK(check_block(name, "output", output, "input", in[root]));
    call.input_sizes = in;
    return group_call_run(group, &call, output, input, NULL, work);
}

/* ---- objects ---- */

static int check_objects(const char *name, const duet_group *group, const void *list, int count) {
    if (!group)
        return fail(ERR_USAGE, "%s: no group was given: this rank is not in it, or left it", name);
    if (count < 0) return fail(ERR_USAGE, "%s: %d objects: give 0 or more", name, count);
    if (!list && count) return fail(ERR_USAGE, "%s: no objects were given", name);
    return OK;
}

/* Objects that this rank gives: bytes without a place are a mistake. */
static int check_given(const char *name, const struct duet_object *list, int count) {
    for (int i = 0; i < count; i++)
        if (list[i].bytes && !list[i].data)
            return fail(ERR_USAGE, "%s: object %d: %zu bytes at NULL", name, i, list[i].bytes);
    return OK;
}

int duet_broadcast_object_list(duet_group *group, struct duet_object *list, int count, int root) {
    static const char name[] = "broadcast_object_list";
    CHECK(check_objects(name, group, list, count));
    if (duet_group_rank(group) == root) CHECK(check_given(name, list, count));
    return group_broadcast_objects(group_of(group), (struct group_object *)list, count, root);
}

int duet_all_gather_object(duet_group *group, struct duet_object *list,
                           const struct duet_object *object) {
    static const char name[] = "all_gather_object";
    CHECK(check_objects(name, group, list && object ? list : NULL, 1));
    CHECK(check_given(name, object, 1));
    return group_gather_objects(group_of(group), (struct group_object *)list,
                                (const struct group_object *)object, -1);
}

int duet_gather_object(duet_group *group, struct duet_object *list,
                       const struct duet_object *object, int root) {
    static const char name[] = "gather_object";
    CHECK(check_objects(name, group, object, 1));
    CHECK(check_given(name, object, 1));
    if (root < 0) return fail(ERR_USAGE, "%s: root %d: give a rank of the group", name, root);
    if (duet_group_rank(group) == root) CHECK(check_objects(name, group, list, 1));
    return group_gather_objects(group_of(group), (struct group_object *)list,
                                (const struct group_object *)object, root);
}

int duet_scatter_object_list(duet_group *group, struct duet_object *object,
                             const struct duet_object *list, int root) {
    static const char name[] = "scatter_object_list";
    CHECK(check_objects(name, group, object, 1));
    if (duet_group_rank(group) == root) {
        CHECK(check_objects(name, group, list, 1));
        CHECK(check_given(name, list, duet_group_size(group)));
    }
    return group_scatter_objects(group_of(group), (struct group_object *)object,
                                 (const struct group_object *)list, root);
}

int duet_send_object_list(duet_group *group, const struct duet_object *list, int count, int to) {
    static const char name[] = "send_object_list";
    CHECK(check_objects(name, group, list, count));
    CHECK(check_given(name, list, count));
    if (to < 0) return fail(ERR_USAGE, "%s: to rank %d: give a rank of the group", name, to);
    return group_send_objects(group_of(group), (const struct group_object *)list, count, to);
}

int duet_recv_object_list(duet_group *group, struct duet_object *list, int count, int from,
                          int *source) {
    CHECK(check_objects("recv_object_list", group, list, count));
    return group_recv_objects(group_of(group), (struct group_object *)list, count, from, source);
}
