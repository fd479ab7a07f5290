/* Allreduce in real processes over shared memory: a grid of ranks, counts and algorithms is
 * compared with the bits of the reference executor and with sums in double. The file also tests
 * consecutive calls, spans and traffic. */
#include "tests/allreduce/cell.h"

#include <sched.h>

static int run_cell(struct rank *r, struct allreduce *ar, const struct cell *cell,
                    const struct plan_config *config, uint64_t *hash) {
    /* any alignment, but the same on all ranks */
    float *data = r->data + 1 + cell->seed % 5;
    data[-1] = data[cell->count] = guard;
    for (size_t i = 0; i < cell->count; i++)
        data[i] = input(cell->seed, r->rank, i, cell->integers);
    CHECK(allreduce_enqueue(ar, device_comm(r->device), data, cell->count, cell->scale, 0,
                            cell->seed));
    CHECK(stream_sync(device_comm(r->device)));
    if (data[-1] != guard || data[cell->count] != guard)
        return fail(ERR_CHECK, "%s, %zu elements: wrote outside",
                    allreduce_algorithm_name(cell->algorithm), cell->count);
    *hash = hash_of(data, cell->count);
    CHECK(same_everywhere(r, *hash, allreduce_algorithm_name(cell->algorithm), cell->count));
    return r->rank == 0 ? judge(r, cell, config, data) : OK;
}

/* All algorithms one after another on the same counts. Those that add in fold order give the same
 * bits; on 2 ranks all do. */
static int run_counts(struct rank *r, const size_t *counts, int how_many,
                      const struct plan_config *config) {
    uint64_t first[32][2];
    int code = OK;
    for (int a = 0; a < ALGORITHMS && !code; a++) {
        struct allreduce *ar = NULL;
        struct allreduce_config setup = {.algorithm = algorithms[a], .plan = *config};
        CHECK(allreduce_init(&ar, r->comm, r->device, &setup));
        code = allreduce_register(ar, r->data, r->count);
        for (int c = 0; c < how_many && !code; c++) {
            for (int integers = 0; integers < 2 && !code; integers++) {
                struct cell cell = {.algorithm = algorithms[a],
                                    .count = counts[c],
                                    .integers = integers,
                                    .seed = 2 * c + integers,
                                    .scale = c % 2 ? 1.0f / (float)r->n : 1.0f};
                uint64_t hash = 0;
                code = run_cell(r, ar, &cell, config, &hash);
                if (a == 0) first[c][integers] = hash;
                if (!code && (allreduce_keeps_order(algorithms[a]) || r->n <= 2) &&
                    first[c][integers] != hash)
                    code = fail(ERR_CHECK, "%s, %zu elements: other bits than naive",
                                allreduce_algorithm_name(algorithms[a]), counts[c]);
            }
        }
        allreduce_free(ar);
    }
    return code;
}

static int grid_entry(void *context) {
    struct job *job = context;
    struct rank r;
    size_t large = (1 << 20) + 3; /* only in few worlds, even and odd: checks are slow */
    int code = rank_open(&r, job, large + 16);
    if (!code) {
        size_t n = (size_t)r.n, counts[] = {0, 1, n - 1, n, n + 1, 1000},
               big[] = {n >= 2 && n <= (job->kind == DEVICE_HOST ? 3 : 2) && !test_short() ? large
                                                                                           : 70001};
        struct plan_config whole = plan_config_default(), small = small_slices(r.n);
        CHECK_KEEP(run_counts(&r, counts, 6, &whole), code);
        if (!code) code = run_counts(&r, counts, 6, &small);
        if (!code) code = run_counts(&r, big, 1, &whole);
    }
    return rank_close(&r, code);
}

Test(allreduce, grid, .timeout = 300) {
    static const int ranks[] = {1, 2, 3, 4, 5, 7, 8};
    for (int i = 0; i < 7; i++) {
        struct job job = {.page = share(sizeof(struct page)), .timeout_s = 60};
        if (test_short() && ranks[i] != 4) continue; /* late devices have fewer */
        run_well(ranks[i], grid_entry, &job);
    }
}

/* The same on devices that run everything as late as they may. */
Test(allreduce, grid_on_late_devices, .timeout = 120) {
    for (int n = 1; n <= 3; n++) {
        struct job job = {
            .page = share(sizeof(struct page)), .timeout_s = 60, .kind = DEVICE_HOST_LATE};
        run_well(n, grid_entry, &job);
    }
}

/* ---- calls in a row, nothing waited for in between ---- */

enum { ROW_CALLS = 100, ROW_COUNT = 3000 };

static int row_calls(void) {
    return test_short() ? 30 : ROW_CALLS;
}

/* Runs on the stream after a call: checks its result and writes the next call's input, as a
 * training step does with gradients. */
struct turn {
    float *data;
    size_t count;
    int n, rank, call;
    int *calls;
};

static int take_turn(void *args) {
    const struct turn *t = args;
    for (size_t i = 0; i < t->count; i++) {
        double sum = 0;
        for (int k = 0; k < t->n; k++)
            sum += input(t->call, k, i, 1);
        if (t->call >= 0 && t->data[i] != sum)
            return fail(ERR_CHECK, "call %d, element %zu: %.9g, not %.9g", t->call, i, t->data[i],
                        sum);
        t->data[i] = input(t->call + 1, t->rank, i, 1);
    }
    __atomic_fetch_add(t->calls, 1, __ATOMIC_RELAXED);
    if ((t->call + t->rank) % 7 == 0) sched_yield();
    return OK;
}

static int turn(struct rank *r, int call) {
    struct turn turn = {r->data, ROW_COUNT, r->n, r->rank, call, &r->job->page->calls[r->rank]};
    return stream_call_host(device_comm(r->device), "turn", 0, take_turn, &turn, sizeof turn);
}

/* A rank uses its objects in turn, and each call has another count. */
static int row_of_calls(struct rank *r, struct allreduce *const *ar, int objects) {
    struct stream *stream = device_comm(r->device);
    CHECK(turn(r, -1));
    for (int call = 0; call < row_calls(); call++) {
        size_t head = (size_t)(call * 37 % ROW_COUNT); /* two buckets, cut elsewhere in each call */
        CHECK(allreduce_enqueue(ar[call % objects], stream, r->data + head, ROW_COUNT - head, 1, 0,
                                call));
        CHECK(allreduce_enqueue(ar[call % objects], stream, r->data, head, 1, 1, call));
        CHECK(turn(r, call));
    }
    return stream_sync(stream);
}

static int row_entry(void *context) {
    struct job *job = context;
    struct rank r;
    struct allreduce *ar[2] = {NULL, NULL};
    int code = rank_open(&r, job, ROW_COUNT);
    for (int a = 0; a < ALGORITHMS && !code; a++) {
        for (int b = a; b < ALGORITHMS && !code; b += 2) { /* alone, and in turns with another */
            struct allreduce_config config = {.algorithm = algorithms[a],
                                              .plan = small_slices(r.n)};
            int objects = a == b ? 1 : 2;
            code = allreduce_init(&ar[0], r.comm, r.device, &config);
            config.algorithm = algorithms[b];
            if (!code && objects == 2) code = allreduce_init(&ar[1], r.comm, r.device, &config);
            for (int k = 0; k < objects && !code; k++)
                code = allreduce_register(ar[k], r.data, ROW_COUNT);
            if (!code) code = row_of_calls(&r, ar, objects);
            for (int k = 0; k < 2; k++) {
                allreduce_free(ar[k]);
                ar[k] = NULL;
            }
        }
    }
    return rank_close(&r, code);
}

Test(allreduce, a_hundred_calls_without_a_sync, .timeout = 120) {
    for (int n = 2 + test_short(); n <= (test_short() ? 3 : 4); n++) {
        struct job job = {.page = share(sizeof(struct page)),
                          .timeout_s = 60,
                          .kind = n == 3 ? DEVICE_HOST_LATE : DEVICE_HOST};
        run_well(n, row_entry, &job);
        for (int r = 0; r < n; r++)
            cr_assert(job.page->calls[r] >= row_calls() * ALGORITHMS);
    }
}

/* One object, `auto`: small calls use one algorithm, large ones another, through the same flags and
 * scratch. */
static int auto_entry(void *context) {
    struct job *job = context;
    struct rank r;
    struct allreduce *ar = NULL;
    size_t large = 400000;
    int code = rank_open(&r, job, large);
    if (!code) code = allreduce_init(&ar, r.comm, r.device, NULL);
    if (!code) code = allreduce_register(ar, r.data, large);
    if (!code &&
        allreduce_algorithm_for(ar, 4, NULL, 0) == allreduce_algorithm_for(ar, large, NULL, 0))
        code = fail(ERR_CHECK, "auto takes one algorithm for all sizes: the test needs two");
    for (int call = 0; call < (test_short() ? 15 : 60) && !code; call++) {
        size_t count = call % 3 == 2 ? large : 4;
        for (size_t i = 0; i < count; i++)
            r.data[i] = input(call, r.rank, i, 1);
        code = allreduce_enqueue(ar, device_comm(r.device), r.data, count, 1, -1, -1);
        if (!code) code = stream_sync(device_comm(r.device));
        for (size_t i = 0; i < count && !code; i++) {
            float sum = 0;
            for (int k = 0; k < r.n; k++)
                sum += input(call, k, i, 1);
            if (r.data[i] != sum)
                code = fail(ERR_CHECK, "call %d, element %zu: %g, not %g", call, i, r.data[i], sum);
        }
    }
    allreduce_free(ar);
    return rank_close(&r, code);
}

Test(allreduce, auto_changes_algorithm_between_calls, .timeout = 60) {
    for (int n = 2; n <= 4; n++) {
        struct job job = {.page = share(sizeof(struct page)), .timeout_s = 50};
        run_well(n, auto_entry, &job);
    }
}

/* ---- spans, traffic, memory ---- */

/* Bytes into and out of rank r, from the plans' formulas: allreduce/test_plan.c holds those against
 * theory. */
static int check_traffic(struct rank *r, enum allreduce_algorithm algorithm, size_t count,
                         int calls) {
    uint64_t want[MAX_DEVICES * MAX_DEVICES] = {0}, moved = 0;
    struct plan_config config = plan_config_default();
    struct plan plan;
    CHECK(plan_build(&plan, algorithm, r->n, r->rank, count, &config));
    moved = plan_traffic(&plan, want);
    plan_free(&plan);
    const struct traffic *traffic = device_traffic(r->device);
    for (int from = 0; from < r->n; from++)
        for (int to = 0; to < r->n; to++)
            if (traffic->bytes[from][to] != (uint64_t)calls * want[from * r->n + to])
                return fail(ERR_CHECK, "%s: %llu bytes from %d to %d, not %d x %llu",
                            allreduce_algorithm_name(algorithm),
                            (unsigned long long)traffic->bytes[from][to], from, to, calls,
                            (unsigned long long)want[from * r->n + to]);
    uint64_t in_out[2] = {traffic_into(traffic, r->rank), traffic_out_of(traffic, r->rank)},
             n = (uint64_t)r->n;
    uint64_t S = count * sizeof(float) * (uint64_t)calls;
    /* direct: n-1 loads of its slice in, n-1 stores of it out; ring: all from the left
     * neighbour. */
    if (algorithm == ALLREDUCE_DIRECT &&
        (in_out[0] != (n - 1) * S / n || in_out[1] != (n - 1) * S / n))
        return fail(ERR_CHECK, "direct: %llu bytes in", (unsigned long long)in_out[0]);
    if (algorithm == ALLREDUCE_RING && (in_out[0] != 2 * (n - 1) * S / n || in_out[1] != 0))
        return fail(ERR_CHECK, "ring: %llu bytes in", (unsigned long long)in_out[0]);

    const struct span_log *log = stream_spans(device_comm(r->device));
    if (log->count != (size_t)calls)
        return fail(ERR_CHECK, "%zu spans of %d calls", log->count, calls);
    for (int i = 0; i < calls; i++) {
        const struct span *s = &log->spans[i];
        if (s->bytes != moved || s->phase != PHASE_ALLREDUCE || s->lane != LANE_COMM ||
            s->step != i || strcmp(s->name, "allreduce bucket 7") || s->end_ns < s->start_ns)
            return fail(ERR_CHECK, "span %d: %s, %llu bytes, step %d", i, s->name,
                        (unsigned long long)s->bytes, s->step);
    }
    return OK;
}

static int traffic_entry(void *context) {
    struct job *job = context;
    struct rank r;
    struct allreduce *ar = NULL;
    size_t count = 12 * 16 * 5;
    int code = rank_open(&r, job, count), calls = 3;
    struct allreduce_config config = allreduce_config_default();
    config.algorithm = job->algorithm;
    if (!code) code = allreduce_init(&ar, r.comm, r.device, &config);
    if (!code) code = allreduce_register(ar, r.data, count);
    uint64_t held = code ? 0 : device_ledger(r.device).now[MEM_COMM];
    if (!code && held == 0) code = fail(ERR_CHECK, "the slab is not in the ledger");
    for (int i = 0; i < calls && !code; i++) {
        for (size_t k = 0; k < count; k++)
            r.data[k] = 1;
        code = allreduce_enqueue(ar, device_comm(r.device), r.data, count, 1, 7, i);
        if (!code) code = stream_sync(device_comm(r.device));
    }
    if (!code) code = comm_barrier(r.comm, "all calls");
    if (!code) code = check_traffic(&r, job->algorithm, count, calls);
    allreduce_free(ar);
    if (!code && device_ledger(r.device).now[MEM_COMM] != 0)
        code = fail(ERR_CHECK, "the slab was not given back");
    return rank_close(&r, code);
}

Test(allreduce, spans_and_traffic_are_exact, .timeout = 60) {
    for (int n = 2 + test_short(); n <= (test_short() ? 3 : 4); n++) {
        for (int a = 0; a < ALGORITHMS; a++) {
            struct job job = {
                .page = share(sizeof(struct page)), .timeout_s = 50, .algorithm = algorithms[a]};
            run_well(n, traffic_entry, &job);
        }
    }
}

/* A world of one needs no launcher and no peers. */
Test(allreduce, alone_it_only_scales, .timeout = 20) {
    struct device_config config = {
        .kind = DEVICE_HOST, .memory_bytes = 4 << 20, .check_operands = 1};
    struct device *device;
    struct allreduce *ar;
    float *data;
    cr_assert_eq(device_open(&device, &config), OK, "%s", error_message());
    cr_assert_eq(device_alloc(device, (void **)&data, 400, MEM_GRADS), OK);
    cr_assert_eq(allreduce_init(&ar, NULL, device, NULL), OK, "%s", error_message());
    cr_assert_eq(allreduce_register(ar, data, 100), OK);
    for (int i = 0; i < 100; i++)
        data[i] = (float)i;
    cr_assert_eq(allreduce_enqueue(ar, device_comm(device), data, 100, 0.5f, 0, 0), OK, "%s",
                 error_message());
    cr_assert_eq(allreduce_enqueue(ar, device_comm(device), data, 100, 1, 0, 0), OK, "%s",
                 error_message());
    cr_assert_eq(stream_sync(device_comm(device)), OK);
    for (int i = 0; i < 100; i++)
        cr_assert(data[i] == 0.5f * (float)i);
    cr_assert_eq(allreduce_enqueue(ar, device_comm(device), data + 1, 100, 1, 0, 0), ERR_FAILED);
    cr_assert(strstr(error_message(), "allreduce_register"), "%s", error_message());
    allreduce_free(ar);
    allreduce_free(NULL);
    device_free(device, data);
    device_close(device);
}
