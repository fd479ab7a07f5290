/* Tests process groups as in a user's program: spawned ranks and ranks that find each other,
 * tensors on every kind of device and of every type, handles, and the two examples. */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/duet/shared.h"

#define EXAMPLES BUILD_DIR "/examples/"

/* A tensor of `count` floats, the first of which is `first`, the next one more, ... */
static duet_tensor *floats(duet_device *device, int count, float first) {
    duet_tensor *t = NULL;
    float *x = malloc((size_t)count * sizeof *x);
    for (int i = 0; i < count; i++)
        x[i] = first + (float)i;
    duet_tensor_create(&t, device, DUET_F32, 1, &count, x);
    free(x);
    return t;
}

static float at(const duet_tensor *t, int i) {
    float x[64] = {0};
    return duet_tensor_read(t, x) ? -1e9f : x[i];
}

/* Every call once. Four elements a block. */
static int every_call(duet_group *group, duet_device *device) {
    int code = DUET_OK, rank = duet_group_rank(group), n = duet_group_size(group);
    float base = (float)(10 * rank);
    duet_tensor *x = floats(device, 4, base), *y = floats(device, 4, -1),
                *many = floats(device, 4 * n, base), *other = floats(device, 4 * n, -1);
    duet_work *work = NULL;
    HOLDS(x && y && many && other);
    TRY(duet_broadcast(group, x, 1, NULL));
    HOLDS(at(x, 3) == 13);
    TRY(duet_all_reduce(group, x, DUET_MAX, NULL));
    HOLDS(at(x, 3) == 13);
    TRY(duet_all_reduce(group, x, DUET_MEAN, &work));
    TRY(duet_work_wait(work));
    HOLDS(duet_work_done(work) && at(x, 0) == 10);
    duet_tensor_free(x), x = NULL;
    TRY(duet_work_wait(work)); /* once more, without the tensor */
    duet_work_free(work), work = NULL;
    TRY(duet_all_gather(group, other, y, NULL, NULL));
    HOLDS(at(other, 4 * n - 1) == 2);
    TRY(duet_all_to_all(group, other, many, NULL, NULL, NULL));
    HOLDS(at(other, 4) == 10 + 4 * (float)rank);
    TRY(duet_reduce_scatter(group, y, many, NULL, DUET_SUM, NULL));
    HOLDS(at(y, 1) == (float)(n * (4 * rank + 1) + 10 * n * (n - 1) / 2));
    TRY(duet_scatter(group, y, rank == 0 ? many : NULL, NULL, 0, NULL));
    HOLDS(at(y, 2) == (float)(4 * rank + 2));
    TRY(duet_gather(group, rank == 2 ? other : NULL, y, NULL, 2, NULL));
    HOLDS(rank != 2 || at(other, 4 * n - 1) == (float)(4 * n - 1));
    TRY(duet_reduce(group, y, 0, DUET_MIN, NULL));
    HOLDS(at(y, 2) == (rank ? (float)(4 * rank + 2) : 2));
    if (rank == 1) TRY(duet_send(group, many, 2, 0, NULL));
    int source = 5;
    if (rank == 2) TRY(duet_recv(group, other, DUET_ANY_SOURCE, 0, &source, NULL));
    HOLDS(rank != 2 || (source == 1 && at(other, 5) == 15));
    TRY(duet_monitored_barrier(group, 20, 1));
    TRY(duet_barrier(group, NULL));
out:
    duet_work_free(work);
    duet_tensor_free(x);
    duet_tensor_free(y);
    duet_tensor_free(many);
    duet_tensor_free(other);
    return code;
}

/* Sums in every type: 1 + 2 + 3. */
static int every_type(duet_group *group, duet_device *device) {
    int code = DUET_OK, rank = duet_group_rank(group), one = 5;
    double f64[5] = {[4] = rank + 1};
    float f32[5] = {[4] = (float)(rank + 1)};
    int32_t i32[5] = {[4] = rank + 1};
    int64_t i64[5] = {[4] = rank + 1};
    uint8_t u8[5] = {[4] = (uint8_t)(rank + 1)};
    static const uint16_t halves[] = {0x3c00, 0x4000, 0x4200},
                          floats16[] = {0x3f80, 0x4000, 0x4040};
    uint16_t f16[5] = {[4] = halves[rank]}, bf16[5] = {[4] = floats16[rank]};
    const struct {
        enum duet_type type;
        void *x;
    } types[] = {{DUET_F32, f32}, {DUET_F64, f64}, {DUET_I32, i32},  {DUET_I64, i64},
                 {DUET_U8, u8},   {DUET_F16, f16}, {DUET_BF16, bf16}};
    for (int t = 0; t < 7; t++) {
        duet_tensor *tensor = NULL, *zero = NULL;
        char bytes[40] = {1};
        code = duet_tensor_create(&tensor, device, types[t].type, 1, &one, types[t].x);
        if (!code) code = duet_all_reduce(group, tensor, DUET_SUM, NULL);
        if (!code) code = duet_tensor_read(tensor, types[t].x);
        if (!code && duet_tensor_type(tensor) != types[t].type) code = DUET_CHECK;
        if (!code) code = duet_tensor_create(&zero, device, types[t].type, 1, &one, NULL);
        if (!code) code = duet_tensor_read(zero, bytes);
        if (!code && bytes[0]) code = DUET_CHECK;
        duet_tensor_free(tensor);
        duet_tensor_free(zero);
        if (code) return code;
    }
    HOLDS(f32[4] == 6 && f64[4] == 6 && i32[4] == 6 && i64[4] == 6 && u8[4] == 6);
    HOLDS(f16[4] == 0x4600 && bf16[4] == 0x40c0);
out:
    return code;
}

static int work(int rank, void *context) {
    const char *kind = context;
    duet_group *group = NULL, *pair = NULL;
    duet_device *device = NULL;
    int code = DUET_OK;
    TRY(duet_group_init(&group, 30));
    HOLDS(duet_group_rank(group) == rank && duet_group_size(group) == 3);
    TRY(duet_devices_open(&device, 1, kind, api_memory(kind)));
    TRY(every_call(group, device));
    TRY(every_type(group, device));
    TRY(duet_group_new(&pair, group, (int[]){2, 0}, 2, 0));
    HOLDS((rank == 1) == !pair && duet_group_rank(pair) == (rank == 1 ? -1 : rank == 0));
    duet_group_destroy(&group); /* the group of two still works */
    HOLDS(!group);
    if (pair) TRY(duet_barrier(pair, NULL));
out:
    duet_group_destroy(&pair);
    duet_group_destroy(&group);
    duet_devices_close(&device, 1);
    return code;
}

/* With CUDA_EMULATION on GPUs too. */
Test(group, every_call_on_every_kind_of_device, .timeout = 60) {
    for (int k = 0; k < API_KINDS; k++)
        MUST(duet_spawn(3, work, (void *)api_kinds[k]));
}

/* ---- spawn ---- */

static int fails(int rank, void *context) {
    duet_group *group = NULL;
    duet_tensor *tensor = NULL;
    int code = duet_group_init(&group, 30);
    if (!code && rank == 1 && !context)
        code = duet_tensor_create(&tensor, NULL, DUET_F32, 1, &rank, NULL);
    if (!code && rank == 1) _exit(7);
    if (!code) code = duet_barrier(group, NULL);
    duet_group_destroy(&group);
    return code;
}

static int returns(int rank, void *context) {
    return rank ? *(const int *)context : DUET_OK;
}

/* A shell or a server may have set SIGCHLD so that the kernel keeps no exit status. */
Test(group, spawn_where_sigchld_is_ignored, .timeout = 60) {
    static const int good = DUET_OK, check = DUET_CHECK;
    struct sigaction now, no_status = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
    signal(SIGCHLD, SIG_IGN);
    MUST(duet_spawn(2, returns, (void *)&good));
    MUST_FAIL(duet_spawn(2, returns, (void *)&check), DUET_CHECK, "ended with status 3");
    cr_assert_eq(sigaction(SIGCHLD, &no_status, &now), 0);
    cr_assert_eq(now.sa_handler, SIG_IGN, "it is as it was");
    MUST(duet_spawn(2, returns, (void *)&good));
}

Test(group, spawn_tells_the_first_failure, .timeout = 60) {
    int strange[] = {70, -1}, check = DUET_CHECK;
    MUST_FAIL(duet_spawn(2, fails, NULL), DUET_USAGE, "rank 1: tensor: no device was given");
    /* that message must not be reported for the next rank, which sets none */
    for (int i = 0; i < 2; i++)
        MUST_FAIL(duet_spawn(2, returns, &strange[i]), DUET_FAILED, "recorded no reason");
    MUST_FAIL(duet_spawn(2, returns, &check), DUET_CHECK, "ended with status 3");
    cr_assert_null(strstr(duet_error(), "status 1"));
    cr_assert_neq(duet_spawn(2, fails, "status"), DUET_OK);
    MUST_SAY("ended with status 7");
    MUST_FAIL(duet_spawn(0, fails, NULL), DUET_USAGE, "0 ranks");
    duet_device *device;
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    MUST_FAIL(duet_spawn(2, fails, NULL), DUET_USAGE, "has a device open");
    duet_devices_close(&device, 1);
}

/* ---- ranks that find each other ---- */

static pid_t start(const char *rank, const char *world, const char *port, const char *program,
                   int *out) {
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    pid_t pid = fork();
    cr_assert(pid >= 0);
    if (pid == 0) {
        setenv("RANK", rank, 1);
        setenv("WORLD_SIZE", world, 1);
        setenv("MASTER_PORT", port, 1);
        dup2(ends[1], 1);
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execl(program, program, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    *out = ends[0];
    return pid;
}

/* The program's exit status; its output in text. */
static int end_of(pid_t pid, int out, char *text, size_t bytes) {
    size_t used = 0;
    ssize_t got;
    int status;
    while ((got = read(out, text + used, bytes - 1 - used)) > 0)
        used += (size_t)got;
    text[used] = 0;
    close(out);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* Two jobs at the same time, the ranks of both in any order. */
Test(group, ranks_find_each_other, .timeout = 60) {
    pid_t pids[2][4];
    int outs[2][4];
    static const char *const ranks[] = {"2", "0", "3", "1"};
    static const char *const lines[] = {
        "rank 2: [10, 11, 12, 13, 14]\n", "rank 0: [0, 1, 2, 3, 4]\n",
        "rank 3: [15, 16, 17, 18, 19]\n", "rank 1: [5, 6, 7, 8, 9]\n"};
    char port[2][16], text[400];
    for (int job = 0; job < 2; job++)
        snprintf(port[job], sizeof port[0], "%d", (int)getpid() * 2 + job);
    for (int r = 0; r < 4; r++)
        for (int job = 0; job < 2; job++)
            pids[job][r] = start(ranks[r], "4", port[job], EXAMPLES "scatter", &outs[job][r]);
    for (int job = 0; job < 2; job++)
        for (int r = 0; r < 4; r++) {
            int status = end_of(pids[job][r], outs[job][r], text, sizeof text);
            cr_assert(status == 0 && !strcmp(text, lines[r]), "status %d: %s", status, text);
        }
}

Test(group, a_rank_twice_is_turned_away, .timeout = 60) {
    char port[16], text[3][400];
    int outs[3], told = 0;
    snprintf(port, sizeof port, "%d", (int)getpid() * 2);
    pid_t zero = start("0", "2", port, EXAMPLES "all_reduce", &outs[0]);
    pid_t wrong = start("1", "3", port, EXAMPLES "all_reduce", &outs[1]);
    int status = end_of(wrong, outs[1], text[1], sizeof text[1]);
    cr_assert(status == 2 && strstr(text[1], "WORLD_SIZE is 3 here and 2 on rank 0"), "%d: %s",
              status, text[1]);
    pid_t one = start("1", "2", port, EXAMPLES "all_reduce", &outs[1]);
    cr_assert_eq(end_of(zero, outs[0], text[0], sizeof text[0]), 0, "%s", text[0]);
    cr_assert_eq(end_of(one, outs[1], text[1], sizeof text[1]), 0, "%s", text[1]);
    told += strcmp(text[0], "rank 0: [[3, 3]]\n") == 0;
    told += strcmp(text[1], "rank 1: [[3, 3]]\n") == 0;
    cr_assert_eq(told, 2);
}

Test(group, a_strange_environment_is_told) {
    duet_group *group;
    unsetenv("RANK"), unsetenv("WORLD_SIZE");
    MUST_FAIL(duet_group_init(&group, 1), DUET_USAGE, "variable WORLD_SIZE: expected, but not set");
    setenv("RANK", "0", 1), setenv("WORLD_SIZE", "2", 1), setenv("LOCAL_WORLD_SIZE", "1", 1);
    MUST_FAIL(duet_group_init(&group, 1), DUET_USAGE,
              "ranks of several machines are started with mpirun");
    unsetenv("LOCAL_WORLD_SIZE");
    MUST_FAIL(duet_group_init(&group, -1), DUET_USAGE, "timeout -1");
    char port[16];
    snprintf(port, sizeof port, "%d", (int)getpid() * 2);
    setenv("MASTER_PORT", port, 1);
    MUST_FAIL(duet_group_init(&group, 0.1), DUET_TIMEOUT, "no word from rank 1 after 0.1 s");
    setenv("RANK", "1", 1);
    MUST_FAIL(duet_group_init(&group, 0.1), DUET_TIMEOUT, "no word from rank 0 after 0.1 s");
    unsetenv("RANK"), unsetenv("WORLD_SIZE"); /* as if started by Open MPI's mpirun */
    setenv("OMPI_COMM_WORLD_RANK", "0", 1), setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    MUST(duet_group_init(&group, 1));
    MUST(duet_barrier(group, NULL));
    duet_group_destroy(&group);
    MUST(duet_group_init(&group, 1)); /* and again */
    duet_group_destroy(&group);
}

/* No launcher started these ranks: rank 0 watches the others, and they watch it. */
static void notice_the_end_of(int dead) {
    char text[64];
    int status;
    duet_group *group;
    snprintf(text, sizeof text, "%d", (int)getpid() * 2 + dead);
    setenv("MASTER_PORT", text, 1), setenv("WORLD_SIZE", "2", 1);
    pid_t other = fork();
    cr_assert(other >= 0);
    setenv("RANK", (other != 0) == dead ? "0" : "1", 1);
    int code = duet_group_init(&group, 20);
    if (!other) {
        if (!code) code = duet_barrier(group, NULL);
        _exit(code ? 1 : 0); /* without leaving */
    }
    MUST(code);
    MUST(duet_barrier(group, NULL));
    for (int call = 2; call < 4; call++) {
        snprintf(text, sizeof text, "barrier #%d: a peer failed first: rank %d (pid", call, dead);
        MUST_FAIL(duet_barrier(group, NULL), DUET_PEER, text);
    }
    duet_group_destroy(&group);
    cr_assert(waitpid(other, &status, 0) == other && status == 0);
}

Test(group, a_rank_that_dies_is_noticed, .timeout = 30) {
    notice_the_end_of(1);
    notice_the_end_of(0);
}

/* A rank that forgets to leave gets a message. */
static int forgets(int rank, void *context) {
    duet_group *group;
    (void)rank, (void)context;
    return duet_group_init(&group, 20);
}

Test(group, a_rank_has_to_leave, .timeout = 30) {
    cr_assert_neq(duet_spawn(2, forgets, NULL), DUET_OK);
    MUST_SAY("duet_group_destroy");
}

/* ---- threads ---- */

/* Rank 0's two threads call a barrier to which rank 1 comes only once one of them has been turned
 * away, so the other one is inside the call at that time. */
struct two_threads {
    duet_group *group;
    int *refused; /* shared by the ranks; atomic */
};

static int call_barrier(void *context, int i) {
    struct two_threads *t = context;
    int code = duet_barrier(t->group, NULL);
    (void)i;
    if (code != DUET_USAGE || !strstr(duet_error(), "another thread")) return code;
    __atomic_fetch_add(t->refused, 1, __ATOMIC_SEQ_CST);
    return DUET_OK;
}

static int two_threads(int rank, void *context) {
    struct two_threads t = {.refused = context};
    int code = duet_group_init(&t.group, 30);
    if (!code && rank == 0) code = duet_parallel(2, call_barrier, &t);
    while (!code && rank == 1 && !__atomic_load_n(t.refused, __ATOMIC_SEQ_CST))
        usleep(1000);
    if (!code && rank == 1) code = duet_barrier(t.group, NULL);
    duet_group_destroy(&t.group);
    return code;
}

Test(group, one_thread_at_a_time, .timeout = 30) {
    int *refused =
        mmap(NULL, sizeof *refused, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(refused != MAP_FAILED);
    MUST(duet_spawn(2, two_threads, refused));
    cr_assert_eq(*refused, 1);
}
