/* Tests parts of different lengths and bytes of any length as in a user's program, on every kind of
 * device: all_to_all_single with split sizes, uneven all_gather, gather, scatter and
 * reduce_scatter, handles, and views of rows. */
#include <stdlib.h>

#include "tests/duet/shared.h"

enum { RANKS = 3, COLUMNS = 2, ROOT = 1 };

/* rows x COLUMNS floats: `first`, and each the next number. */
static duet_tensor *rows(duet_device *device, int count, float first) {
    duet_tensor *t = NULL;
    float x[64];
    for (int i = 0; i < count * COLUMNS; i++)
        x[i] = first + (float)i;
    duet_tensor_create(&t, device, DUET_F32, 2, (int[]){count, COLUMNS}, x);
    return t;
}

static float at(const duet_tensor *t, int i) {
    float x[64] = {0};
    return duet_tensor_read(t, x) ? -1e9f : x[i];
}

/* ---- blocks of different lengths ---- */

enum call { ALL_TO_ALL, ALL_GATHER, GATHER, SCATTER, CALLS };

/* Rows that rank `from` gives rank `to`. */
static int rows_given(enum call call, int from, int to) {
    switch (call) {
    case ALL_TO_ALL: return to;
    case ALL_GATHER: return from + 1;
    case GATHER: return to == ROOT ? from + 1 : 0;
    default: return from == ROOT ? to + 1 : 0;
    }
}

static int uneven(duet_group *group, duet_device *device, enum call call, int begun) {
    int code = DUET_OK, rank = duet_group_rank(group), gives[RANKS], gets[RANKS], in_rows = 0,
        out_rows = 0, parts = call == ALL_TO_ALL || call == SCATTER, i = 0;
    for (int r = 0; r < RANKS; r++) {
        gives[r] = rows_given(call, rank, r), gets[r] = rows_given(call, r, rank);
        in_rows += gives[r], out_rows += gets[r];
    }
    if (!parts) in_rows = rank + 1; /* one block, for all */
    duet_tensor *in = call == SCATTER && rank != ROOT ? NULL
                                                      : rows(device, in_rows, (float)(100 * rank)),
                *out = call == GATHER && rank != ROOT ? NULL : rows(device, out_rows, -99);
    duet_work *work = NULL, **handle = begun ? &work : NULL;
    switch (call) {
    case ALL_TO_ALL: TRY(duet_all_to_all(group, out, in, gets, gives, handle)); break;
    case ALL_GATHER: TRY(duet_all_gather(group, out, in, gets, handle)); break;
    case GATHER: TRY(duet_gather(group, out, in, gets, ROOT, handle)); break;
    default: TRY(duet_scatter(group, out, in, gives, ROOT, handle));
    }
    if (begun) TRY(duet_work_wait(work));
    for (int from = 0; from < RANKS && out; from++) {
        int before = 0; /* rows of `from` that go to the ranks before this one */
        for (int r = 0; r < rank && parts; r++)
            before += rows_given(call, from, r);
        for (int k = 0; k < gets[from] * COLUMNS; k++)
            HOLDS(at(out, i++) == (float)(100 * from + before * COLUMNS + k));
    }
out:
    duet_work_free(work);
    duet_tensor_free(in);
    duet_tensor_free(out);
    return code;
}

/* Rank 1 gets nothing, and the result is a view of the last rows of a tensor. */
static int reduce_scatter(duet_group *group, duet_device *device) {
    static const int splits[] = {2, 0, 1}, starts[] = {0, 2, 2};
    int code = DUET_OK, rank = duet_group_rank(group);
    duet_tensor *in = rows(device, 3, (float)(10 * rank)), *whole = rows(device, 4, -1),
                *out = NULL;
    HOLDS(in && whole);
    TRY(duet_tensor_rows(&out, whole, 4 - splits[rank], splits[rank]));
    TRY(duet_reduce_scatter(group, out, in, splits, DUET_MAX, NULL));
    for (int i = 0; i < 4 * COLUMNS; i++) {
        int k = i - (4 - splits[rank]) * COLUMNS; /* in the view */
        HOLDS(at(whole, i) == (k < 0 ? (float)(i - 1) : (float)(20 + starts[rank] * COLUMNS + k)));
    }
out:
    duet_tensor_free(in);
    duet_tensor_free(out);
    duet_tensor_free(whole);
    return code;
}

/* The tensor of one block is this rank's part of the other tensor. */
static int in_place(duet_group *group, duet_device *device) {
    int code = DUET_OK, rank = duet_group_rank(group);
    duet_tensor *all = rows(device, 2 * RANKS, (float)(100 * rank)), *own = NULL, *other = NULL;
    HOLDS(all);
    TRY(duet_tensor_rows(&own, all, 2 * rank, 2));
    TRY(duet_tensor_rows(&other, all, 2 * ((rank + 1) % RANKS), 2));
    TRY(duet_all_gather(group, all, own, NULL, NULL));
    for (int i = 0; i < 2 * RANKS * COLUMNS; i++)
        HOLDS(at(all, i) == (float)(100 * (i / (2 * COLUMNS)) + i));
    TRY(duet_reduce_scatter(group, own, all, NULL, DUET_SUM, NULL));
    for (int i = 0; i < 2 * RANKS * COLUMNS; i++)
        HOLDS(at(all, i) ==
              (float)((100 * (i / (2 * COLUMNS)) + i) * (i / (2 * COLUMNS) == rank ? RANKS : 1)));
    HOLDS(duet_all_gather(group, all, other, NULL, NULL) == DUET_USAGE);
    HOLDS(duet_reduce_scatter(group, other, all, NULL, DUET_SUM, NULL) == DUET_USAGE);
out:
    duet_tensor_free(own);
    duet_tensor_free(other);
    duet_tensor_free(all);
    return code;
}

/* Several calls under way at once, whose tensors are of a GPU where there is one. */
static int many_handles(duet_group *group, duet_device *device) {
    int code = DUET_OK, rank = duet_group_rank(group);
    duet_tensor *x[6] = {0};
    duet_work *work[6] = {0};
    for (int i = 0; i < 6; i++) {
        x[i] = rows(device, 20, (float)(i + rank));
        HOLDS(x[i]);
        TRY(duet_all_reduce(group, x[i], DUET_SUM, &work[i]));
    }
    for (int i = 5; i >= 0; i--) {
        TRY(duet_work_wait(work[i]));
        HOLDS(duet_work_done(work[i]) && at(x[i], 39) == (float)(3 * (i + 39) + 3));
    }
out:
    for (int i = 0; i < 6; i++) {
        duet_work_free(work[i]);
        duet_tensor_free(x[i]);
    }
    return code;
}

static int work(int rank, void *context) {
    const char *kind = context;
    duet_group *group = NULL;
    duet_device *device = NULL;
    int code = DUET_OK;
    TRY(duet_group_init(&group, 30));
    TRY(duet_device_open(&device, kind, rank, api_memory(kind)));
    for (int i = 0; i < 2 * CALLS; i++)
        TRY(uneven(group, device, i / 2, i % 2));
    TRY(reduce_scatter(group, device));
    TRY(many_handles(group, device));
    TRY(in_place(group, device));
out:
    duet_group_destroy(&group);
    duet_devices_close(&device, 1);
    return code;
}

/* With CUDA_EMULATION on GPUs too. */
Test(group_uneven, every_call_on_every_kind_of_device, .timeout = 60) {
    for (int k = 0; k < API_KINDS; k++)
        MUST(duet_spawn(RANKS, work, (void *)api_kinds[k]));
}

#ifdef CUDA_EMULATION
/* Each rank has a GPU of its own, which no other GPU can reach. */
Test(group_uneven, gpus_without_peer_access, .timeout = 60) {
    setenv("EMULATED_GPUS", "3", 1);
    setenv("EMULATED_PEER", "0", 1);
    MUST(duet_spawn(RANKS, work, "cuda"));
}
#endif

/* ---- ranks that give other split sizes ---- */

/* Rank 2 reduces where the others exchange rows: the first rank that compares reports different
 * calls, not different sizes. */
static int calls_another(int rank, void *context) {
    duet_group *group = NULL;
    duet_device *device = NULL;
    duet_tensor *in = NULL, *out = NULL;
    int code = DUET_OK;
    (void)context;
    TRY(duet_group_init(&group, 30));
    TRY(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    in = rows(device, RANKS, 0), out = rows(device, RANKS, 0);
    code = rank == 2 ? duet_reduce(group, in, 0, DUET_SUM, NULL)
                     : duet_all_to_all(group, out, in, (int[]){1, 1, 1}, (int[]){1, 1, 1}, NULL);
out:
    duet_tensor_free(in);
    duet_tensor_free(out);
    duet_group_destroy(&group);
    duet_devices_close(&device, 1);
    return code;
}

Test(group_uneven, another_call_is_no_other_size, .timeout = 60) {
    for (int i = 0; i < 8; i++) { /* which rank compares first differs from run to run */
        cr_assert_neq(duet_spawn(RANKS, calls_another, NULL), DUET_OK);
        MUST_SAY("Detected mismatch between collectives on ranks");
        MUST_SAY("REDUCE");
        MUST_SAY("ALLTOALL");
    }
}
