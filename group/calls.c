/* The public calls of process groups. The calls of group/ move host memory. An emulated device has
 * host memory; a GPU's tensors are copied to host memory before a call and back after it. */
#include <stdlib.h>

#include "group/calls.h"

struct duet_work {
    struct work *work;
    /* On a GPU: the host copies of the call's tensors; NULL on other devices. */
    void *staged_input, *staged_output;
    duet_tensor *output;
    struct device *device;
    int back; /* 1: staged_output must still be copied back */
};

_Static_assert(DUET_ANY_SOURCE == (int)ANY_SOURCE, "duet.h repeats it");

/* ---- groups ---- */

static int check_timeout(const char *what, double timeout_s) {
    return timeout_s >= 0 && timeout_s <= 1e9
               ? OK
               : fail(ERR_USAGE, "%s: timeout %g: give seconds, or 0 for the default", what,
                      timeout_s);
}

static int check_group(const char *what, const duet_group *group) {
    return group
               ? OK
               : fail(ERR_USAGE,
                      "%s: group is NULL: this rank never joined the group, or has left it", what);
}

int duet_group_init(duet_group **out, double timeout_s) {
    CHECK_OUT(out);
    CHECK(check_timeout("process group", timeout_s));
    return group_open((struct group **)out, timeout_s);
}

int duet_group_join(duet_group **out, const char *name, int rank, int world_size,
                    double timeout_s) {
    CHECK_OUT(out);
    if (!name || !*name) return fail(ERR_USAGE, "process group: no name was given");
    if (world_size < 1 || world_size > DUET_MAX_DEVICES)
        return fail(ERR_USAGE, "process group: world size %d: give 1 to %d", world_size,
                    DUET_MAX_DEVICES);
    if (rank < 0 || rank >= world_size)
        return fail(ERR_USAGE, "process group: rank %d of %d: give 0 to %d", rank, world_size,
                    world_size - 1);
    CHECK(check_timeout("process group", timeout_s));
    return group_join((struct group **)out, name, rank, world_size, timeout_s);
}

int duet_group_new(duet_group **out, duet_group *world, const int *ranks, int n, double timeout_s) {
    CHECK_OUT(out);
    if (!world || !ranks)
        return fail(ERR_USAGE, "new group: no %s given", world ? "ranks were" : "group was");
    CHECK(check_timeout("new group", timeout_s));
    return group_new((struct group **)out, group_of(world), ranks, n, timeout_s);
}

void duet_group_destroy(duet_group **group) {
    if (!group) return;
    group_close(group_of(*group));
    *group = NULL;
}

int duet_group_rank(const duet_group *group) {
    return group ? group_rank(group_of(group)) : -1;
}

int duet_group_size(const duet_group *group) {
    return group ? group_size(group_of(group)) : -1;
}

int duet_group_local_rank(const duet_group *group) {
    return group ? group_local_rank(group_of(group)) : -1;
}

/* ---- memory of a call ---- */

/* Host memory for a tensor of a GPU, with its elements if `read`. */
static int stage(const duet_tensor *t, void **staged, int read) {
    size_t bytes = tensor_bytes(&t->t);
    struct stream *stream = device_compute(t->device);
    CHECK(device_host_alloc(t->device, staged, bytes ? bytes : 1));
    if (read && bytes) CHECK(copy_to_host(stream, *staged, t->t.data, bytes));
    return stream_sync(stream);
}

static void drop_stage(struct duet_work *w) {
    if (w->staged_input) device_host_free(w->device, w->staged_input);
    if (w->staged_output && w->staged_output != w->staged_input)
        device_host_free(w->device, w->staged_output);
    w->staged_input = w->staged_output = NULL;
}

/* Sets the call's memory, after pending work on the tensors has ended. */
static int prepare(struct duet_work *w, struct group_call *call, duet_tensor *output,
                   const duet_tensor *input) {
    const duet_tensor *t = output ? output : input;
    if (!t) return OK;
    w->device = t->device;
    w->output = output;
    if (!is_on_gpu(t)) {
        call->input = input ? input->t.data : NULL;
        call->output = output ? output->t.data : NULL;
        CHECK(stream_sync(device_compute(t->device)));
        return input && input->device != t->device ? stream_sync(device_compute(input->device))
                                                   : OK;
    }
    if (input) CHECK(stage(input, &w->staged_input, 1));
    if (output == input)
        w->staged_output = w->staged_input;
    else if (output)
        CHECK(stage(output, &w->staged_output, 1)); /* some calls leave parts unchanged */
    w->back = output != NULL;
    call->input = w->staged_input;
    call->output = w->staged_output;
    return OK;
}

/* After the call: copies the result to the GPU, once. A handle may be waited for again after the
 * tensor is freed. */
static int finish(struct duet_work *w, int code) {
    int back = w->back && !code;
    w->back = 0;
    size_t bytes = back ? tensor_bytes(&w->output->t) : 0;
    if (!bytes) return code;
    struct stream *stream = device_compute(w->device);
    CHECK(copy_to_device(stream, w->output->t.data, w->staged_output, bytes));
    return stream_sync(stream);
}

/* Makes the call with these tensors, or with host copies of them if they are on a GPU. */
static int run_call(duet_group *group, struct group_call *call, duet_tensor *output,
                    const duet_tensor *input, int *source, duet_work **out) {
    struct duet_work *w = calloc(1, sizeof *w);
    if (!w) return fail(ERR_MEMORY, "process group: out of host memory: free some");
    tensor_written(output);
    int code = prepare(w, call, output, input);
    if (!code) code = group_run(group_of(group), call, out || source ? &w->work : NULL);
    if (!code && out) {
        *out = w;
        return OK;
    }
    if (!code && w->work) code = work_wait(w->work);
    if (!code && source) *source = work_source(w->work);
    code = finish(w, code);
    work_free(w->work);
    drop_stage(w);
    free(w);
    return code;
}

int duet_work_wait(duet_work *work) {
    if (!work) return fail(ERR_USAGE, "wait: no handle was given");
    return finish(work, work_wait(work->work));
}

int duet_work_done(duet_work *work) {
    return work ? work_done(work->work) : 0;
}

int duet_work_source(const duet_work *work) {
    return work ? work_source(work->work) : -1;
}

void duet_work_free(duet_work *work) {
    if (!work) return;
    duet_work_wait(work); /* callers that want the result have already waited */
    work_free(work->work);
    drop_stage(work);
    free(work);
}

/* ---- arguments ---- */

/* Sets the fields of every call: group, handle, and the tensor that gives type and count. */
static int begin_call(const char *name, const duet_group *group, const duet_tensor *tensor,
                      duet_work **work, struct group_call *call) {
    if (work) *work = NULL;
    CHECK(check_group(name, group));
    if (!tensor) return fail(ERR_USAGE, "%s: no tensor was given", name);
    call->how.type = tensor->t.dtype;
    call->count = tensor_count(&tensor->t);
    return OK;
}

static int read_op(const char *name, enum duet_reduction op, struct group_call *call) {
    call->average = op == DUET_MEAN;
    switch (op) {
    case DUET_MEAN:
    case DUET_SUM: call->how.op = ELEMENT_SUM; return OK;
    case DUET_PRODUCT: call->how.op = ELEMENT_PRODUCT; return OK;
    case DUET_MIN: call->how.op = ELEMENT_MIN; return OK;
    case DUET_MAX: call->how.op = ELEMENT_MAX; return OK;
    default: break;
    }
    return fail(ERR_USAGE,
                "%s: operation %d: expected DUET_SUM, DUET_PRODUCT, DUET_MIN, DUET_MAX or "
                "DUET_MEAN",
                name, (int)op);
}

/* ---- the calls ---- */

int duet_barrier(duet_group *group, duet_work **work) {
    struct group_call call = {.what = COLLECTIVE_BARRIER};
    if (work) *work = NULL;
    CHECK(check_group("barrier", group));
    return run_call(group, &call, NULL, NULL, NULL, work);
}

int duet_monitored_barrier(duet_group *group, double timeout_s, int all) {
    CHECK(check_group("monitored_barrier", group));
    CHECK(check_timeout("monitored_barrier", timeout_s));
    return group_monitored_barrier(group_of(group), timeout_s, all);
}

int duet_broadcast(duet_group *group, duet_tensor *tensor, int root, duet_work **work) {
    struct group_call call = {.what = COLLECTIVE_BROADCAST, .root = root};
    CHECK(begin_call("broadcast", group, tensor, work, &call));
    return run_call(group, &call, tensor, tensor, NULL, work);
}

int duet_reduce(duet_group *group, duet_tensor *tensor, int root, enum duet_reduction op,
                duet_work **work) {
    struct group_call call = {.what = COLLECTIVE_REDUCE, .root = root};
    CHECK(begin_call("reduce", group, tensor, work, &call));
    CHECK(read_op("reduce", op, &call));
    return run_call(group, &call, tensor, tensor, NULL, work);
}

int duet_all_reduce(duet_group *group, duet_tensor *tensor, enum duet_reduction op,
                    duet_work **work) {
    struct group_call call = {.what = COLLECTIVE_ALL_REDUCE};
    CHECK(begin_call("all_reduce", group, tensor, work, &call));
    CHECK(read_op("all_reduce", op, &call));
    return run_call(group, &call, tensor, tensor, NULL, work);
}

static int run_blocks(const char *name, duet_group *group, struct group_call *call,
                      duet_tensor *output, const duet_tensor *input, const int *sizes,
                      duet_work **work) {
    size_t lengths[MAX_DEVICES];
    CHECK(group_call_blocks(name, group, call, output, input, sizes, lengths));
    return run_call(group, call, output, input, NULL, work);
}

int duet_gather(duet_group *group, duet_tensor *output, const duet_tensor *input,
                const int *output_split_sizes, int root, duet_work **work) {
    struct group_call call = {.what = COLLECTIVE_GATHER, .root = root};
    CHECK(begin_call("gather", group, input, work, &call));
    if (duet_group_rank(group) == root)
        return run_blocks("gather", group, &call, output, input, output_split_sizes, work);
    call.uneven = output_split_sizes != NULL;
    return run_call(group, &call, NULL, input, NULL, work);
}

int duet_all_gather(duet_group *group, duet_tensor *output, const duet_tensor *input,
                    const int *output_split_sizes, duet_work **work) {
    struct group_call call = {.what = COLLECTIVE_ALL_GATHER};
    CHECK(begin_call("all_gather", group, input, work, &call));
    return run_blocks("all_gather", group, &call, output, input, output_split_sizes, work);
}

int duet_scatter(duet_group *group, duet_tensor *output, const duet_tensor *input,
                 const int *input_split_sizes, int root, duet_work **work) {
    struct group_call call = {.what = COLLECTIVE_SCATTER, .root = root};
    CHECK(begin_call("scatter", group, output, work, &call));
    if (duet_group_rank(group) == root)
        return run_blocks("scatter", group, &call, output, input, input_split_sizes, work);
    call.uneven = input_split_sizes != NULL;
    return run_call(group, &call, output, NULL, NULL, work);
}

int duet_reduce_scatter(duet_group *group, duet_tensor *output, const duet_tensor *input,
                        const int *input_split_sizes, enum duet_reduction op, duet_work **work) {
    struct group_call call = {.what = COLLECTIVE_REDUCE_SCATTER};
    CHECK(begin_call("reduce_scatter", group, output, work, &call));
    CHECK(read_op("reduce_scatter", op, &call));
    return run_blocks("reduce_scatter", group, &call, output, input, input_split_sizes, work);
}

int duet_all_to_all(duet_group *group, duet_tensor *output, const duet_tensor *input,
                    const int *output_split_sizes, const int *input_split_sizes, duet_work **work) {
    struct group_call call = {.what = COLLECTIVE_ALL_TO_ALL};
    size_t out[MAX_DEVICES], in[MAX_DEVICES];
    CHECK(begin_call("all_to_all", group, input, work, &call));
    CHECK(group_call_exchange(group, &call, output, input, output_split_sizes, input_split_sizes,
                              out, in));
    return run_call(group, &call, output, input, NULL, work);
}

int duet_send(duet_group *group, const duet_tensor *tensor, int to, int tag, duet_work **work) {
    struct group_call call = {.what = COLLECTIVE_SEND, .peer = to, .tag = tag};
    CHECK(begin_call("send", group, tensor, work, &call));
    if (to < 0) return fail(ERR_USAGE, "send: to rank %d: give a rank of the group", to);
    return run_call(group, &call, NULL, tensor, NULL, work);
}

int duet_recv(duet_group *group, duet_tensor *tensor, int from, int tag, int *source,
              duet_work **work) {
    struct group_call call = {.what = COLLECTIVE_SEND, .peer = from, .receive = 1, .tag = tag};
    CHECK(begin_call("recv", group, tensor, work, &call));
    if (source && work)
        return fail(ERR_USAGE,
                    "recv: with a handle the source is not known yet: give NULL, and ask "
                    "duet_work_source");
    return run_call(group, &call, tensor, NULL, source, work);
}
