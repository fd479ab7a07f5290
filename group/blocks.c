/* Checks the blocks of a call, which may have equal or different lengths. One tensor, `many`, has
 * the blocks of all ranks; the other, `one`, has this rank's block. */
#include "group/calls.h"

static int is_part(const duet_tensor *one, const duet_tensor *many, int own) {
    size_t at = (size_t)own * tensor_bytes(&one->t);
    return own >= 0 && (const char *)one->t.data == (const char *)many->t.data + at;
}

/* `other` must be a tensor of the same type and kind of device as `one`, and share no memory with
 * it; but `one` may be block number `own` of it (-1: none). `which` is its name, for the message
 * that it is missing. */
static int check_memory(const char *name, const char *which, const duet_tensor *other,
                        const duet_tensor *one, int own) {
    int gpu = is_on_gpu(one);
    if (!other) return fail(ERR_USAGE, "%s: no %s tensor was given", name, which);
    if (other->t.dtype != one->t.dtype)
        return fail(ERR_USAGE, "%s: input and output are of different types", name);
    if (is_on_gpu(other) != gpu || (gpu && other->device != one->device))
        return fail(ERR_USAGE, "%s: input and output are on different devices", name);
    if (other->device == one->device && tensor_overlap(&other->t, &one->t) &&
        !is_part(one, other, own))
        return fail(ERR_USAGE, "%s: input and output overlap: copy one with duet_tensor_to first",
                    name);
    return OK;
}

/* If blocks differ in length, input and output must be different too. */
static int check_apart(const char *name, const char *which, const duet_tensor *other,
                       const duet_tensor *one) {
    CHECK(check_memory(name, which, other, one, -1));
    if (other->t.data != one->t.data || !tensor_bytes(&other->t) || !tensor_bytes(&one->t))
        return OK;
    return fail(ERR_USAGE, "%s: input and output overlap: copy one with duet_tensor_to first",
                name);
}

/* The lengths in elements of a tensor's n blocks. Splits are rows of dimension 0, as in PyTorch. */
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

int group_call_blocks(const char *name, const duet_group *group, struct group_call *call,
                      const duet_tensor *output, const duet_tensor *input, const int *sizes,
                      size_t *lengths) {
    int gathers = call->what == COLLECTIVE_GATHER || call->what == COLLECTIVE_ALL_GATHER,
        n = group_size(group_of(group)), me = group_rank(group_of(group));
    const duet_tensor *many = gathers ? output : input, *one = gathers ? input : output;
    const char *which = gathers ? "output" : "input";
    if (sizes) {
        CHECK(check_apart(name, which, many, one));
        CHECK(read_splits(name, which, many, sizes, n, lengths));
        *(gathers ? &call->output_sizes : &call->input_sizes) = lengths;
        if (tensor_count(&one->t) == lengths[me]) return OK;
        return fail(ERR_USAGE,
                    "%s: %s tensor of %zu elements, but %s_split_sizes give this rank %zu", name,
                    gathers ? "input" : "output", tensor_count(&one->t), which, lengths[me]);
    }
    CHECK(check_memory(name, which, many, one, me));
    if (tensor_count(&many->t) == (size_t)n * tensor_count(&one->t)) return OK;
    return fail(ERR_USAGE,
                "%s: %s tensor of %zu elements for tensors of %zu: its size must be equal to "
                "world_size times theirs",
                name, which, tensor_count(&many->t), tensor_count(&one->t));
}

int group_call_exchange(const duet_group *group, struct group_call *call, const duet_tensor *output,
                        const duet_tensor *input, const int *output_sizes, const int *input_sizes,
                        size_t *out, size_t *in) {
    static const char name[] = "all_to_all";
    int n = group_size(group_of(group)), me = group_rank(group_of(group));
    if (output_sizes || input_sizes) {
        CHECK(check_apart(name, "output", output, input));
        CHECK(read_splits(name, "input", input, input_sizes, n, in));
        CHECK(read_splits(name, "output", output, output_sizes, n, out));
        call->input_sizes = in;
        call->output_sizes = out;
        if (in[me] == out[me]) return OK;
        return fail(ERR_USAGE,
                    "%s: rank %d sends itself %zu elements but expects %zu: its input and output "
                    "split sizes for itself must be equal",
                    name, me, in[me], out[me]);
    }
    CHECK(check_memory(name, "output", output, input, -1));
    if (tensor_count(&output->t) != call->count)
        return fail(
            ERR_USAGE,
            "%s: output tensor of %zu elements for an input of %zu: must have the same size", name,
            tensor_count(&output->t), call->count);
    if (call->count % (size_t)n)
        return fail(ERR_USAGE, "%s: %zu elements for %d ranks: give a multiple", name, call->count,
                    n);
    call->count /= (size_t)n;
    return OK;
}
