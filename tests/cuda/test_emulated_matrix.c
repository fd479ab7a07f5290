/* Tests train, compare and demo on emulated machines: 1, 2, 4 and 8 GPUs that reach all others,
 * none, or one in a pair, with 1 to 8 devices. Every run ends, has the bits of one device, and uses
 * the allreduce path of such a machine.
 *
 * By default train and compare alternate, so that each pair of settings occurs at least once: each
 * number of GPUs with each number of devices, and so on. With DUET_TEST_LONG=1 all 288 run,
 * including demo, whose own lesson takes seconds. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"
#include "tests/app/cli/run.h"
#include "tests/harness/gpus.h"
#include "tests/harness/text.h"

#ifndef CUDA_EMULATION
Test(emulated_matrix, needs_the_emulated_runtime, .timeout = 10) {
    cr_skip_test("make EMULATION=1 check runs this");
}
#else

enum { MACHINES = 4, PEERS = 3, MOST_DEVICES = 8 };
enum { TRAIN, COMPARE, DEMO, COMMANDS };

static const int gpus_of[MACHINES] = {1, 2, 4, 8};
static const char *const peers_of[PEERS] = {"1", "0", "pairs"};

static const char TINY[] =
    "--device cuda --data-dir d --model mlp --mlp-hidden 4 --steps 2 --batch-size 16";

/* How the largest bucket of `devices` ranks must be summed. */
static const char *expected_way(int gpus, const char *peers, int devices) {
    int used = devices < gpus ? devices : gpus;
    int reached = !strcmp(peers, "1") ? used : !strcmp(peers, "0") ? 1 : 2;
    if (devices == 1) return "";
    if (used > reached) return "staged in host memory: rank ";
    return devices > gpus ? "one GPU" : "a GPU for each rank";
}

/* DDP ends with the file of single. */
static void train(int devices, const char *way) {
    cli_well("train %s --mode single --virtual-devices %d --quiet --save one", TINY, devices);
    cli_well("train %s --mode ddp --devices %d --virtual-devices %d --quiet --save two --json j",
             TINY, devices, devices);
    cr_assert(cli_same_file("one", "two"), "the weights differ");
    struct json *json = json_of("j");
    cr_expect(devices == 1 || strstr(json_text(json, "allreduce_choice"), way), "%s: %s", way,
              json_text(json, "allreduce_choice"));
    json_free(json);
}

static void compare(const char *command, int devices, const char *way) {
    struct cli c;
    cli_run(&c, "%s %s --devices %d", command, TINY, devices);
    cr_assert(c.status == 0 && !*c.err, "%d: %s", c.status, c.err);
    cr_expect(strstr(c.out, "\nDP = single: identical to the bit after 2 steps") &&
                  strstr(c.out, "\nDDP = single: identical to the bit after 2 steps"),
              "%s", c.out);
    cr_expect(says(c.out, way), "not '%s': %s", way, c.out);
    cli_free(&c);
}

static void run(int command, int gpus, const char *peers, int devices) {
    const char *way = expected_way(gpus, peers, devices);
    fprintf(stderr, "%d GPUs, peers %s, %d devices, command %d\n", gpus, peers, devices, command);
    set_gpus(gpus);
    set_peers(peers);
    if (command == TRAIN)
        train(devices, way);
    else
        compare(command == DEMO ? "demo" : "compare", devices, way);
}

/* Over the four machines each number of devices meets all peers and both commands. */
static int is_chosen(int machine, int peers, int devices, int command) {
    const char *all = getenv("DUET_TEST_LONG");
    if (all && *all) return 1;
    return peers == (machine + devices) % PEERS && command == (machine / 2 + devices) % DEMO;
}

CliTest(emulated_matrix, every_machine_trains, 7000) {
    setenv("DUET_NCCL", "/no/such/libnccl.so", 1);
    put_data(32, 8);
    for (int m = 0; m < MACHINES; m++)
        for (int p = 0; p < PEERS; p++)
            for (int devices = 1; devices <= MOST_DEVICES; devices++)
                for (int c = 0; c < COMMANDS; c++)
                    if (is_chosen(m, p, devices, c)) run(c, gpus_of[m], peers_of[p], devices);
}
#endif
