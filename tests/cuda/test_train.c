/* Tests training on GPUs with the command, through a matrix of command lines. Each row is a model
 * with its options, on a number of emulated GPUs. single, dp, ddp and fsdp end with equal files,
 * byte by byte, whether devices have a GPU each or share one. The losses are those of emulated
 * devices, except for the order of sums. Other tests run auto, compare and profile on a GPU.
 *
 * It is skipped if no GPU opens. In a build with EMULATION=1 kernels run on the CPU, about a
 * thousand times slower than on a GPU, so batches are tiny and the networks small. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/nets.h"
#include "tests/app/cli/trace.h"
#include "tests/app/cli/ways.h"
#include "tests/harness/gpus.h"

/* in batches of 12 the last one holds 11, or is padded where V = 4 */
enum { PICTURES = 83, TESTS = 8 };

/* Makes a folder with few images, and `gpus` GPUs where they are emulated. */
static void set_up(int gpus, int peers) {
    int count;
    set_gpus(gpus);
    set_peers(peers ? "1" : "0");
    if (device_probe(DEVICE_CUDA, &count)) cr_skip_test("%s", error_message());
    put_data(PICTURES, TESTS);
}

/* The terms of a product are added in another order than on the cpu, so a loss is off by some
 * roundings of 2^-24, which grow with each update; a wrong gradient, or an update left out, is off
 * by much more after one step. */
static const double RELATIVE = 1e-4;

/* In the single run streams are late, and the host cannot reach device memory: a missing wait or
 * a pointer followed on the wrong side shows. In the short form one GPU that four devices share
 * goes all ways. */
static void run_row(int gpus, int peers, way *ways, const char *what) {
    char options[512];
    snprintf(options, sizeof options,
             "--device cuda --virtual-devices 4 --quiet --lr 0.05 --seed 3 %s", what);
    set_up(gpus, peers);
    put_norm_model("small");
    setenv("EMULATED_CUDA_LATE_US", "200", 1);
    setenv("EMULATED_CUDA_GUARD", "1", 1);
    train("single", options, "one");
    unsetenv("EMULATED_CUDA_LATE_US");
    unsetenv("EMULATED_CUDA_GUARD");
    memcpy(options, "--device cpu ", 13);
    train("single", options, "cpu");
    near_losses("cpu.csv", "one.csv", RELATIVE);
    memcpy(options, "--device cuda", 13);
    all_as_one(ways == ALL && gpus > 1 && test_short() ? SOME : ways, options);
}

#define ROW(name, ...)               \
    CliTest(cuda_train, name, 300) { \
        run_row(__VA_ARGS__);        \
    }
#define MLP "--data-dir d --model mlp --mlp-hidden 20,13 --batch-size 12 --epochs 2 "
#define SMALL "--data-dir d --model mlp --mlp-hidden 20 --batch-size 12 --epochs 3 "

ROW(on_one_gpu, 1, 1, ALL, MLP "--momentum 0.9 --weight-decay 0.001")
ROW(on_four_gpus, 4, 1, ALL, MLP "--momentum 0.9")
/* Three batches an update, and a seventh alone. */
ROW(accumulated_gradients, 1, 1, SOME, SMALL "--epochs 6 --momentum 0.9 --no-sync-steps 3")
ROW(left_out_layers, 1, 1, FOUR,
    "--data-dir d --model branches --find-unused-parameters --optimizer adam --lr 0.01 "
    "--batch-size 12 --epochs 1")
/* 83 images in batches of 5 without padding: the last has 3, so device 3 has none of them. */
ROW(uneven_inputs, 1, 1, TWO, SMALL "--momentum 0.9 --batch-size 5 --epochs 1 --join")
/* GPUs that do not reach each other: copies go through the host, and the reduce through staging on
 * device 0. */
ROW(without_peer_access, 4, 0, DP, MLP "--momentum 0.9")
ROW(lenet, 2, 1, TWO,
    "--data-dir d --model lenet --batch-size 4 --steps 5 --init-from golden/lenet_300.safetensors")
ROW(convnet, 2, 1, TWO, "--data-dir d --model convnet --batch-size 4 --steps 3 --lr 0.02")
/* An update reads what changes from step to step. Each optimizer's formula: tests/cuda/test_ops. */
ROW(adam, 1, 1, SOME, MLP "--optimizer adam --lr 0.0005 --weight-decay 0.01")
/* Targets in place of labels. */
ROW(random_targets, 2, 1, SOME,
    "--dataset random --model simple --loss mse --samples 80 --batch-size 16 --no-shuffle --lr 0.1")

/* BatchNorm, running statistics included: ResNet-18 on GPUs; emulated ones, on which its step takes
 * seconds, train a small model. */
#ifdef CUDA_EMULATION
#define NORM "--model small "
#else
#define NORM "--model resnet18 "
#endif
#define NORM_RUN                                                          \
    NORM "--dataset synthetic --shape 1x9x8 --samples 16 --batch-size 8 " \
         "--steps 2 "
ROW(batch_norm_synchronised, 2, 1, DDP, NORM_RUN "--sync-bn")
ROW(batch_norm_by_device, 1, 1, TWO, NORM_RUN)

/* auto takes a GPU where there is one. That devices share one is said once, by the process that
 * leads. */
CliTest(cuda_train, auto_and_sharing, 120) {
    struct cli c;
    set_up(2, 1);
    cli_run(&c, "train --mode dp --devices 3 --device auto --data-dir d --model mlp --mlp-hidden 8 "
                "--batch-size 12 --steps 2 "
                "--json j");
    cr_assert(c.status == 0 && !*c.err, "%d %s", c.status, c.err);
    struct json *j = json_of("j");
    cr_expect_str_eq(json_text(j, "device_kind"), "cuda");
    int gpus = (int)json_int(j, "gpus");
    cr_expect(gpus >= 1 && gpus <= 3);
    const char *said = strstr(c.out, "3 devices share ");
    if (gpus < 3)
        cr_expect(said && atoi(said + 16) == gpus && !strstr(said + 16, "devices share"), "%s",
                  c.out);
    else
        cr_expect(!said, "%s", c.out);
    json_free(j);
    cli_free(&c);
}

#define TINY "--device cuda --devices 2 --data-dir d --model mlp --mlp-hidden 16 --batch-size 12 "

/* compare and profile on GPUs: the proof, and which devices they were; without graphs, which would
 * hide the phases. */
CliTest(cuda_train, compare_and_profile, 300) {
    set_up(1, 1);
    cli_says(0,
             "\nDP = single: identical to the bit after 14 steps|\nDDP = single: identical to the "
             "bit after 14 steps|^mlp on fashion-mnist, cuda devices( \\(2 devices share 1 "
             "GPU\\))?: 14 steps|!host shared memory",
             "compare " TINY "--epochs 2 --json j");
    struct json *j = json_of("j");
    for (int m = 0; m < 3; m++) {
        static const char *const keys[] = {"single", "dp", "ddp"};
        const struct json *run = json_at(j, keys[m]);
        cr_expect(json_int(run, "per_device/0/phase_ns/forward") > 0 &&
                  json_int(run, "per_device/0/phase_ns/backward") > 0);
    }
    json_free(j);
    cli_says(0, "^mlp on fashion-mnist, cuda devices", "profile " TINY "--steps 5 --json j");
    j = json_of("j");
    cr_expect_gt(json_int(j, "ddp/per_device/1/comm_ns"), 0);
    json_free(j);
}

/* What NCCL cannot do is said before two modes have trained in vain. */
CliTest(cuda_train, nccl_is_tried_first, 120) {
    set_up(1, 1);
    setenv("DUET_NCCL", "/nowhere/libnccl.so", 1);
    cli_fails(2, "duet: DDP: |/nowhere/libnccl.so", "compare " TINY "--allreduce nccl --json j");
    cli_fails(2, "duet: DDP: |/nowhere/libnccl.so", "profile " TINY "--allreduce nccl --json j");
}

/* Graphs would hide the kernels: with a trace each is launched by itself, on the clock of its
 * device. */
CliTest(cuda_train, trace, 300) {
    static const char *const modes[] = {"single", "dp", "ddp"}, *const titles[] = {"single", "DP",
                                                                                   "DDP"};
    set_up(2, 2);
    for (int m = 0; m < 3; m++) {
        struct cli c;
        cli_run(&c,
                "train --mode %s --device cuda --data-dir d --model mlp --mlp-hidden "
                "16 --batch-size 12 --epochs 2 --quiet "
                "--json j --trace t",
                modes[m]);
        cr_assert(c.status == 0 && !*c.err, "%d %s", c.status, c.err);
        struct json *trace = json_of("t"), *run = json_of("j");
        check_traced_run(trace, titles[m], run, 14);
        json_free(trace), json_free(run);
        cli_free(&c);
    }
}

/* Where the program holds no code for a GPU the driver compiles the kernels, which takes a while:
 * one line says so, for each GPU and not for each device. On 10.3 code for 10.0 runs. */
CliTest(cuda_train, says_that_the_kernels_are_compiled, 60) {
    const char *line = "has compute capability 11.0: this program holds code for 8.0, 9.0";
    struct cli c;
    set_up(1, 1);
    cli_run(&c, "devices");
    int emulated = strstr(c.out, "emulated GPU") != NULL;
    cli_free(&c);
    if (!emulated) cr_skip_test("only emulated GPUs have the capability that a test wants");
    for (int capability = 103; capability <= 110; capability += 7) {
        setenv("EMULATED_CAPABILITY", capability == 110 ? "110" : "103", 1);
        cli_run(&c, "train --mode dp --devices 2 --device cuda --data-dir d --model mlp --steps 1 "
                    "--batch-size 12 --mlp-hidden 13 --quiet");
        cr_expect_eq(c.status, 0, "%s", c.err);
        const char *first = strstr(c.err, line);
        cr_expect_eq(first != NULL, capability == 110, "%s", c.err);
        cr_expect(!first || !strstr(first + 1, line), "said twice: %s", c.err);
        cli_free(&c);
    }
}

#ifdef CUDA_EMULATION
/* Shards by NCCL's gathers and sums: over two GPUs there is one order, over three NCCL's own. */
CliTest(cuda_train, shards_by_nccl, 200) {
    static const char *const says[] = {"FSDP = single: identical to the bit after 3 steps",
                                       "FSDP ~ single: agree within rounding in the first step"};
    char fake[PATH_MAX + 200];
    set_up(3, 3);
    snprintf(fake, sizeof fake, "%s/%s/tests/stand_ins/fake_cuda_libraries/fake_nccl.so",
             cli_root_path, BUILD_DIR);
    setenv("DUET_NCCL", fake, 1);
    for (int i = 0; i < 2; i++)
        cli_says(0, says[i],
                 "compare " TINY "--modes single,fsdp --devices %d --steps 3 --allreduce nccl "
                 "--quiet",
                 2 + i);
}

/* The items of these kinds that the GPU was given in a run of so many steps. */
static void count_items(int steps, int *copies, int *blocks) {
    struct cli c;
    cli_run(&c,
            "train --mode single --device cuda --data-dir d --quiet --model mlp --mlp-hidden 9 "
            "--batch-size 4 --steps %d --log-loss l",
            steps);
    cr_assert_eq(c.status, 0, "%s", c.err);
    *copies = count_of(c.err, ": copy\n");
    *blocks = count_of(c.err, "write_value");
    cli_free(&c);
}

/* 5 and 7 of 16 batches: neither is a power of two, so both runs read the logs equally often. */
CliTest(cuda_train, a_step_brings_its_batch_alone, 60) {
    int copies[2], blocks[2];
    set_up(1, 1);
    put_data(64, 4);
    setenv("EMULATED_CUDA_TRACE", "1", 1);
    count_items(5, &copies[0], &blocks[0]);
    count_items(7, &copies[1], &blocks[1]);
    cr_expect_eq(copies[1] - copies[0], 2 * 2, "pixels and labels of two steps: %d copies",
                 copies[1] - copies[0]);
    cr_expect_eq(blocks[1] - blocks[0], 2, "step blocks: %d", blocks[1] - blocks[0]);
}

/* How the largest bucket of `devices` ranks must be summed. */
static const char *expected_way(int gpus, const char *peers, int devices) {
    int used = devices < gpus ? devices : gpus;
    int reached = !strcmp(peers, "1") ? used : !strcmp(peers, "0") ? 1 : 2;
    if (devices == 1) return "";
    if (used > reached) return "staged in host memory: rank ";
    return devices > gpus ? "one GPU" : "a GPU for each rank";
}

/* Machines of 1 to 8 GPUs that reach all others, none, or one in a pair, with 1 to 8 devices: every
 * run ends, proves equal bits, and takes the allreduce path of such a machine. By default each
 * number of devices meets all peers; with DUET_TEST_LONG=1 all 96 machines run. */
CliTest(cuda_train, every_machine, 2000) {
    static const char *const peers[] = {"1", "0", "pairs"}, *all;
    all = getenv("DUET_TEST_LONG");
    setenv("DUET_NCCL", "/no/such/libnccl.so", 1);
    for (int m = 0; m < 4; m++)
        for (int p = 0; p < 3; p++)
            for (int devices = 1; devices <= 8; devices++) {
                if ((!all || !*all) && p != (m + devices) % 3) continue;
                set_up(1 << m, 0);
                set_peers(peers[p]);
                char *out = cli_output("compare " TINY "--mlp-hidden 4 --steps 2 --batch-size 16 "
                                       "--devices %d",
                                       devices);
                cr_expect(says(out, expected_way(1 << m, peers[p], devices)) &&
                              says(out, "DP = single: identical to the bit after 2 steps") &&
                              says(out, "DDP = single: identical to the bit after 2 steps"),
                          "%d GPUs, peers %s: %s", 1 << m, peers[p], out);
                free(out);
            }
}
#endif
