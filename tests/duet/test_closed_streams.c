/* Programs of the library that are started with some of descriptors 0, 1 and 2 closed
 * (`program >&-`). No descriptor that the library opens may get one of these numbers: what the
 * program prints would be written into it, for example into the memory of a device. The numbers
 * must therefore stay free, whatever the library does, for every subset of the three. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files/event_file.h"
#include "tests/duet/shared.h"

enum { STREAMS = 3, SUBSETS = 1 << STREAMS, RANKS = 2, COUNT = 1000, SECONDS = 20 };

static int closed_now; /* bit s: descriptor s is closed */

/* Called after each step: are all that were closed still free? What is printed goes nowhere. */
static int still_free(void) {
    for (int s = 0; s < STREAMS; s++)
        if (closed_now >> s & 1 && (fcntl(s, F_GETFD) >= 0 || write(s, "printed", 7) == 7))
            return 0;
    return 1;
}

/* Ends a process that sees what must not be; the line is where it did. */
#define SEE(condition)                      \
    do {                                    \
        if (!(condition)) return __LINE__;  \
        if (!still_free()) return __LINE__; \
    } while (0)

/* One process: devices, a copy between them, a file saved and read. */
static int alone(void) {
    const char *file = "closed.safetensors";
    float x[COUNT] = {1, 2, 3}, y[COUNT] = {0};
    const struct duet_param param = {.name = "w", .rank = 1, .shape = {COUNT}, .values = x};
    duet_device *devices[2];
    duet_params *params, *other;
    SEE(!duet_devices_open(devices, 2, "cpu", API_MEMORY));
    SEE(!duet_params_create(&params, devices[0], &param, 1));
    SEE(!duet_params_create(&other, devices[1], &param, 1));
    SEE(!duet_tensor_scale(duet_params_value(other, 0), 0));
    SEE(!duet_params_save(params, file));
    SEE(!duet_params_save(params, file)); /* in place of the first */
    SEE(!duet_params_load(other, file));
    SEE(!duet_tensor_read(duet_params_value(other, 0), y));
    SEE(!memcmp(x, y, sizeof x));
    struct event_file events;
    SEE(!event_file_open(&events, "."));
    event_file_close(&events);
    duet_params_free(other);
    duet_params_free(params);
    duet_devices_close(devices, 2);
    return 0;
}

/* A rank: the sum of 1 and 2, twice, the second time in another group. Returns a line of this
 * file, or 0. */
static int rank_sees(int rank) {
    float x[COUNT];
    const int shape = COUNT, all[RANKS] = {0, 1};
    duet_group *group, *both;
    duet_device *device;
    duet_tensor *tensor;
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(rank + 1);
    SEE(!duet_group_init(&group, SECONDS));
    SEE(!duet_device_open(&device, "cpu", rank, API_MEMORY));
    SEE(!duet_tensor_create(&tensor, device, DUET_F32, 1, &shape, x));
    SEE(!duet_all_reduce(group, tensor, DUET_SUM, NULL));
    SEE(!duet_group_new(&both, group, all, RANKS, 0));
    SEE(!duet_all_reduce(both, tensor, DUET_SUM, NULL));
    SEE(!duet_tensor_read(tensor, x));
    for (int i = 0; i < COUNT; i++)
        SEE(x[i] == 6);
    duet_group_destroy(&both);
    duet_group_destroy(&group);
    duet_tensor_free(tensor);
    duet_devices_close(&device, 1);
    return 0;
}

static int *lines; /* what each rank has seen: shared by the processes of a test */

static int spawned(int rank, void *context) {
    (void)context;
    lines[rank] = rank_sees(rank);
    return lines[rank] ? DUET_CHECK : DUET_OK;
}

static int spawns(void) {
    for (int r = 0; r < RANKS; r++)
        lines[r] = -1;
    SEE(!duet_spawn(RANKS, spawned, NULL));
    return lines[0] ? lines[0] : lines[1];
}

/* Ranks that no launcher has started: they find each other by the environment. */
static int by_hand(void) {
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    char port[16];
    snprintf(port, sizeof port, "%d", 20000 + (int)(getpid() % 40000));
    setenv("MASTER_PORT", port, 1);
    pid_t pids[RANKS];
    int status, line = 0;
    for (int r = 0; r < RANKS; r++)
        if (!(pids[r] = fork())) {
            setenv("RANK", r ? "1" : "0", 1);
            setenv("LOCAL_RANK", r ? "1" : "0", 1);
            int seen = rank_sees(r);
            lines[r] = seen;
            _exit(seen ? 1 : 0);
        }
    for (int r = 0; r < RANKS; r++) {
        waitpid(pids[r], &status, 0);
        if (status && !line) line = lines[r] ? lines[r] : -1;
    }
    return line;
}

/* Runs `see` in its own process for each subset, in its own folder. */
static void for_all_subsets(int (*see)(void)) {
    char folder[] = "/tmp/duet_closed_XXXXXX";
    cr_assert_not_null(mkdtemp(folder));
    int code = 0, subset = 0;
    for (; subset < SUBSETS && !code; subset++) {
        fflush(NULL);
        pid_t pid = fork();
        if (!pid) {
            if (chdir(folder)) _exit(125);
            closed_now = subset;
            for (int s = 0; s < STREAMS; s++)
                if (subset >> s & 1) close(s);
            lines[RANKS] = see();
            _exit(lines[RANKS] ? 1 : 0);
        }
        int status = -1;
        waitpid(pid, &status, 0);
        code = status;
    }
    char shell[64];
    snprintf(shell, sizeof shell, "rm -rf %s", folder);
    cr_assert_eq(system(shell), 0);
    cr_assert_eq(code, 0, "subset %d: status %x: line %d: %s", subset - 1, (unsigned)code,
                 lines[RANKS], duet_error());
}

static void map_lines(void) {
    lines = mmap(NULL, (RANKS + 1) * sizeof *lines, PROT_READ | PROT_WRITE,
                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(lines, MAP_FAILED);
}

Test(api_closed_streams, one_process, .timeout = 60, .init = map_lines) {
    for_all_subsets(alone);
}

Test(api_closed_streams, spawned_ranks, .timeout = 60, .init = map_lines) {
    for_all_subsets(spawns);
}

Test(api_closed_streams, ranks_that_find_each_other, .timeout = 60, .init = map_lines) {
    for_all_subsets(by_hand);
}
