/* Buffers under DDP: a broadcast gives every rank those of rank 0, to the bit, whatever the bits
 * stand for; with own_buffers each rank keeps its own. */
#include "tests/ddp/job.h"

#include "tests/harness/gpus.h"

enum { NUMBERS = 5 };

static const struct buffer_spec specs[] = {{"mean", DTYPE_F32, 1, {NUMBERS}, 0},
                                           {"batches", DTYPE_I64, 0, {0}, 0}};

static void give_buffers(struct model *model, int rank) {
    (void)rank;
    model->buffer_count = 2;
    model->buffers = malloc(sizeof specs); /* model_free frees it, and the names */
    cr_assert_not_null(model->buffers);
    memcpy(model->buffers, specs, sizeof specs);
    for (int i = 0; i < 2; i++)
        cr_assert_not_null(model->buffers[i].name = strdup(specs[i].name));
}

/* Rank r's buffers: signalling NaNs, denormal numbers and minus zero among them. */
static void fill(unsigned char *bytes, size_t count, int rank) {
    static const uint32_t numbers[] = {0x7f800001u, 0x00000003u, 0x80000000u, 0xffbfffffu};
    memset(bytes, 0, count);
    for (size_t i = 0; i < NUMBERS; i++) {
        uint32_t number = numbers[(i + (size_t)rank) % 4] + (uint32_t)(rank << 4);
        memcpy(bytes + 4 * i, &number, sizeof number);
    }
    int64_t batches = 0x7f8000017f800001 + rank;
    memcpy(bytes + buffer_offset(specs, 2, 1), &batches, sizeof batches);
}

static int rank_main(void *context) {
    struct job *job = context;
    struct worker w;
    unsigned char mine[64], want[64], got[64];
    int code = worker_open(&w, job), rank = code ? 0 : comm_rank(w.comm);
    size_t bytes = w.replica.params->buffers.bytes;
    fill(mine, bytes, rank);
    fill(want, bytes, job->config.own_buffers ? rank : 0);
    for (int step = 0; !code && step < 3; step++) {
        code = buffer_set_write(&w.replica.params->buffers, mine);
        if (!code) code = ddp_broadcast_buffers(w.ddp, step);
        if (!code) code = buffer_set_read(&w.replica.params->buffers, got);
        if (!code && memcmp(got, want, bytes))
            code = fail(ERR_FAILED, "step %d, rank %d: not the buffers of rank %d", step, rank,
                        job->config.own_buffers ? rank : 0);
    }
    if (code) comm_abort(w.comm, code, error_message());
    worker_close(&w);
    return error_exit_status(code);
}

static void check(enum device_kind kind, int world, int own) {
    struct job job = job_default();
    struct launch_result result;
    struct launch launch = {.world_size = world, .entry = rank_main, .context = &job};
    job.kind = kind;
    job.world = world;
    job.config.own_buffers = own;
    job.change_model = give_buffers;
    job.memory = kind == DEVICE_CUDA ? 128 << 20 : 0;
    cr_assert_eq(launch_ranks(&launch, &result), OK, "%d ranks: %s", world, error_message());
}

Test(ddp_buffers, rank_0s_go_to_all, .timeout = 60) {
    check(DEVICE_HOST, 2, 0);
    check(DEVICE_HOST_LATE, 4, 0);
}

Test(ddp_buffers, a_rank_may_keep_its_own, .timeout = 60) {
    check(DEVICE_HOST, 2, 1);
}

Test(ddp_buffers, rank_0s_go_to_all_gpus, .timeout = 60) {
    need_gpus(2);
    check(DEVICE_CUDA, 2, 0);
}

Test(ddp_buffers, rank_0s_go_to_all_on_a_shared_gpu, .timeout = 60) {
    need_gpus(1);
    check(DEVICE_CUDA, 3, 0);
}
