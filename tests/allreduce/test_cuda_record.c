/* Calls of an allreduce on GPUs inside a recording: the spin executor's run with each replay, the
 * others' are refused. */
#include "tests/allreduce/cuda.h"

/* The scale is 0.75: with 0.5 over 2 ranks a second call would change nothing. */
enum { REPLAYS = 3 };

static int refused(int code, const char *words) {
    return code && strstr(error_message(), words)
               ? OK
               : fail(ERR_CHECK, "not refused for '%s': %s", words, error_message());
}

static int replay_all(struct stream *stream, struct recording *recording) {
    for (int i = 0; i < REPLAYS; i++)
        CHECK(stream_replay(stream, recording, "allreduce"));
    return stream_sync(stream);
}

/* Where no kernel runs the whole plan the recording refuses the call. Otherwise REPLAYS replays run
 * between two plain calls, each a call of its own; the first plain call brings the plan to the GPU,
 * which a recording cannot do. *calls: how many calls were made. */
static int record_call(struct rank *r, struct allreduce *ar, size_t count, int *calls) {
    struct stream *stream = device_compute(r->device);
    struct recording *recording = NULL;
    int spins = !strcmp(allreduce_executor_name(ar), "spin");
    int staged = !strcmp(allreduce_executor_name(ar), "staged");
    const char *why = spins    ? "only counts that were seen before"
                      : staged ? "ranks whose GPUs cannot reach each other meet on the host"
                               : "ranks that share a GPU wait for each other's flags";
    CHECK(allreduce_enqueue(ar, stream, r->data, count, 0.75f, 0, 0));
    CHECK(stream_sync(stream));
    CHECK(stream_record_begin(stream));
    CHECK(refused(allreduce_enqueue(ar, stream, r->data, count - 1, 0.75f, 0, 0), why));
    CHECK(stream_record_end(stream, NULL));
    CHECK(comm_barrier(r->comm, "recording"));
    if (spins) {
        CHECK(stream_record_begin(stream));
        int code = allreduce_enqueue(ar, stream, r->data, count, 0.75f, 0, 0);
        CHECK_KEEP(stream_record_end(stream, code ? NULL : &recording), code);
        if (!code) code = replay_all(stream, recording);
        recording_free(recording);
        CHECK(code);
    }
    *calls = 2 + (spins ? REPLAYS : 0);
    CHECK(allreduce_enqueue(ar, stream, r->data, count, 0.75f, 0, 1));
    return stream_sync(stream);
}

static int judge_calls(const struct rank *r, const struct allreduce_config *config,
                       const float *got, size_t count, int calls) {
    static float all[MAX_DEVICES][4099];
    float *data[MAX_DEVICES];
    for (int k = 0; k < r->n; k++) {
        data[k] = all[k];
        for (size_t i = 0; i < count; i++)
            data[k][i] = input(9, k, i, 0);
    }
    for (int call = 0; call < calls; call++)
        CHECK(reference_allreduce(config->algorithm, r->n, count, &config->plan, data, 0.75f));
    return memcmp(got, data[r->rank], count * sizeof *got)
               ? fail(ERR_CHECK, "%d calls: other bits than the reference's", calls)
               : OK;
}

static int recorded_entry(void *context) {
    struct job *job = context;
    struct rank r;
    struct allreduce *ar = NULL;
    struct allreduce_config config = {.algorithm = job->algorithm, .plan = small_slices(2)};
    static float host[4099];
    int code = rank_open(&r, job, 4099), calls = 0;
    if (!code) code = allreduce_init(&ar, r.comm, r.device, &config);
    if (!code) code = allreduce_register(ar, r.data, 4099);
    for (size_t i = 0; i < 4099; i++)
        host[i] = input(9, r.rank, i, 0);
    if (!code) code = put(&r, host, r.data, 4099);
    if (!code) code = record_call(&r, ar, 4099, &calls);
    if (!code) code = get(&r, host, r.data, 4099);
    if (!code) code = judge_calls(&r, &config, host, 4099, calls);
    allreduce_free(ar);
    return rank_close(&r, code);
}

static void run_recorded(int gpus) {
    static const enum allreduce_algorithm some[] = {ALLREDUCE_ONESHOT, ALLREDUCE_TREE};
    need_gpus(gpus);
    for (int a = 0; a < 2; a++) {
        struct job job = {.page = share(sizeof(struct page)),
                          .timeout_s = 60,
                          .kind = DEVICE_CUDA,
                          .algorithm = some[a]};
        run_well(2, recorded_entry, &job);
    }
}

Test(allreduce_cuda_record, a_recording_is_refused_on_one_gpu, .timeout = 60) {
    run_recorded(1);
}

Test(allreduce_cuda_record, replays_are_calls_with_a_gpu_each, .timeout = 60) {
    run_recorded(2);
}

Test(allreduce_cuda_record, a_recording_is_refused_on_gpus_out_of_reach, .timeout = 60) {
    need_emulated();
    set_peers("0");
    run_recorded(2);
}
