/* Tests training on GPUs with the command, through a matrix of command lines. Each row is a model
 * with its options, on a number of emulated GPUs. single, dp, ddp and fsdp end with equal files,
 * byte by byte, whether devices have a GPU each or share one. The losses are those of emulated
 * devices, except for the order of sums. Other tests run auto, compare and profile on a GPU.
 *
 * It is skipped if no GPU opens. In a build with EMULATION=1 kernels run on the CPU, about a
 * thousand times slower than on a GPU, so batches are tiny and the networks small. */
#include "device/device.h"
#include "tests/app/cli/data.h"
#include "tests/app/cli/nets.h"
#include "tests/app/cli/of_mode.h"
#include "tests/app/cli/trace.h"

/* in batches of 12 the last one holds 11, or is padded where V = 4 */
enum { PICTURES = 83, TESTS = 8, STEPS = 8 };

/* Makes a folder with few images, and `gpus` GPUs where they are emulated. */
static void set_up(int gpus, int peers) {
    char text[16];
    int count;
    snprintf(text, sizeof text, "%d", gpus);
    setenv("EMULATED_GPUS", text, 1);
    setenv("EMULATED_PEER", peers ? "1" : "0", 1);
    if (device_probe(DEVICE_CUDA, &count)) cr_skip_test("%s", error_message());
    put_data(PICTURES, TESTS);
}

/* ---- the matrix ---- */

struct way {
    const char *mode;
    int devices;
    const char *options;
};

/* The ways to load a batch; steps of 12 and of 8, and the ends of epochs. */
static const struct way ALL[] = {
    {"single", 1, ""},
    {"dp", 1, ""},
    {"dp", 2, ""},
    {"dp", 2, "--loss-in-forward"},
    {"dp", 4, ""},
    {"dp", 4, "--loss-in-forward --workers 0"},
    {"dp", 4, "--dp-reduce sharded --output-device 2"},
    {"dp", 2, "--output-device 1 --loss-in-forward --dp-reduce sharded"},
    {"ddp", 1, ""},
    {"ddp", 2, "--allreduce fused"},
    {"ddp", 2, "--allreduce ring"},
    {"ddp", 2, "--allreduce tree --bucket-cap-mb 0.0001"},
    {"ddp", 4, "--bucket-cap-mb 0.0001"},
    {"ddp", 4, "--allreduce naive"},
    {"ddp", 4, "--allreduce oneshot --bucket-cap-mb 0.0001"},
    {"ddp", 4, "--allreduce direct"},
    {"fsdp", 2, "--shard optimizer"},
    {"fsdp", 4, "--units 0.0001"},
    {NULL, 0, NULL}};
static const struct way SOME[] = {{"single", 1, ""},
                                  {"dp", 2, ""},
                                  {"dp", 4, "--loss-in-forward"},
                                  {"ddp", 2, "--allreduce fused"},
                                  {"ddp", 4, "--bucket-cap-mb 0.0001"},
                                  {"fsdp", 4, "--shard gradients"},
                                  {NULL, 0, NULL}};
static const struct way DP[] = {{"dp", 2, ""}, {"dp", 4, "--loss-in-forward"}, {NULL, 0, NULL}};
static const struct way PLAIN[] = {{"dp", 2, ""}, {"ddp", 2, ""}, {"ddp", 4, ""}, {NULL, 0, NULL}};
static const struct way TWO[] = {{"dp", 2, ""}, {"ddp", 2, ""}, {NULL, 0, NULL}};
static const struct way DDP[] = {{"ddp", 2, ""}, {NULL, 0, NULL}};

struct row {
    int gpus, peers;
    const struct way *ways;
    const char *options;
};

/* Reads the third column of a loss file; returns the number of steps. */
static int losses_of(const char *path, double loss[STEPS]) {
    char *text = cli_read(path, NULL), *rest = text, *line;
    int count = 0;
    cr_assert_not_null(text);
    while ((line = strsep(&rest, "\n")) && count < STEPS)
        count += sscanf(line, "%*d,%*d,%lf", &loss[count]) == 1;
    free(text);
    return count;
}

/* The terms of a product are added in another order, so a loss is off by some roundings of 2^-24,
 * which grow with each update; a wrong gradient, or an update left out, is off by much more
 * after one step. */
static const double RELATIVE = 1e-4;

static void near_the_cpu(const char *common, const char *options) {
    double cpu[STEPS], cuda[STEPS];
    cli_well("train --mode single --device cpu %s %s --log-loss cpu.csv", common, options);
    int steps = losses_of("cpu.csv", cpu);
    cr_assert(steps == losses_of("one.csv", cuda) && steps > 1);
    for (int i = 0; i < steps; i++)
        cr_expect(fabs(cuda[i] - cpu[i]) <= RELATIVE * fabs(cpu[i]),
                  "%s: step %d: loss %.9g, on the cpu %.9g", options, i, cuda[i], cpu[i]);
}

/* In the single run streams are late, and the host cannot reach device memory: a missing wait or
 * a pointer followed on the wrong side shows. */
static void run_row(const struct row *r) {
    static const char common[] = "--virtual-devices 4 --quiet --lr 0.05 --seed 3";
    set_up(r->gpus, r->peers);
    put_norm_model("small");
    setenv("EMULATED_CUDA_LATE_US", "200", 1);
    setenv("EMULATED_CUDA_GUARD", "1", 1);
    cli_well("train --mode single --device cuda %s %s --log-loss one.csv --save one", common,
             of_mode("single", r->options));
    unsetenv("EMULATED_CUDA_LATE_US");
    unsetenv("EMULATED_CUDA_GUARD");
    near_the_cpu(common, of_mode("single", r->options));
    /* In the short form one GPU that four devices share runs all of them. */
    const struct way *ways = r->ways == ALL && r->gpus > 1 && test_short() ? SOME : r->ways;
    for (const struct way *way = ways; way->mode; way++) {
        cli_well(
            "train --mode %s --devices %d --device cuda %s %s %s --log-loss two.csv --save two "
            "--json two.json",
            way->mode, way->devices, common, of_mode(way->mode, r->options), way->options);
        cr_expect(cli_same_file("one.csv", "two.csv"), "%s on %d, %s: losses differ: %s", way->mode,
                  way->devices, way->options, r->options);
        cr_expect(cli_same_file("one", "two"), "%s on %d, %s: weights differ: %s", way->mode,
                  way->devices, way->options, r->options);
        struct json *j = json_of("two.json");
        cr_expect_str_eq(json_text(j, "device_kind"), "cuda");
        json_free(j);
    }
}

#define ROW(name, ...)                       \
    CliTest(cuda_train, name, 300) {         \
        run_row(&(struct row){__VA_ARGS__}); \
    }
#define MLP "--data-dir d --model mlp --mlp-hidden 20,13 --batch-size 12 --epochs 2 "
#define SMALL "--data-dir d --model mlp --mlp-hidden 20 --batch-size 12 --epochs 3 "

ROW(on_one_gpu, 1, 1, ALL, MLP "--momentum 0.9 --weight-decay 0.001")
ROW(on_four_gpus, 4, 1, ALL, MLP "--momentum 0.9")
/* Three batches an update, and a seventh alone. */
ROW(accumulated_gradients, 1, 1, SOME, SMALL "--epochs 6 --momentum 0.9 --no-sync-steps 3")
ROW(left_out_layers, 1, 1, PLAIN,
    "--data-dir d --model branches --find-unused-parameters --optimizer adam --lr 0.01 "
    "--batch-size 12 --epochs 1")
/* 83 images in batches of 5 without padding: the last has 3, so device 3 has none of them. */
ROW(uneven_inputs, 1, 1, TWO, SMALL "--momentum 0.9 --batch-size 5 --epochs 1 --join")
/* GPUs that do not reach each other: copies go through the host, and the reduce through staging on
 * device 0. */
ROW(without_peer_access, 4, 0, DP, MLP "--momentum 0.9")
ROW(lenet, 2, 1, TWO,
    "--data-dir d --model lenet --batch-size 4 --steps 5 --init-from golden/lenet_300.safetensors")
ROW(convnet, 2, 1, DDP, "--data-dir d --model convnet --batch-size 4 --steps 3 --lr 0.02")
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
#define NORM_RUN                                                                             \
    NORM "--dataset synthetic --shape 1x9x8 --samples 8 --virtual-devices 2 --batch-size 4 " \
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

/* compare on GPUs: the proof, and which devices they were; without graphs, which would hide the
 * phases. */
CliTest(cuda_train, compare, 300) {
    static const char proof[] = " = single: identical to the bit after 14 steps";
    set_up(1, 1);
    struct cli c;
    cli_run(&c, "compare --device cuda --devices 2 --data-dir d --model mlp --mlp-hidden 16 "
                "--batch-size 12 --epochs 2 --json j");
    cr_assert(c.status == 0 && !*c.err, "%d %s", c.status, c.err);
    const char *first = strstr(c.out, proof);
    cr_expect(first && strstr(first + 1, proof), "%s", c.out);
    cr_expect(
        matches(c.out,
                "^mlp on fashion-mnist, cuda devices( \\(2 devices share 1 GPU\\))?: 14 steps"),
        "%s", c.out);
    cr_expect(!strstr(c.out, "host shared memory"), "%s", c.out);
    struct json *j = json_of("j");
    for (int m = 0; m < 3; m++) {
        static const char *const keys[] = {"single", "dp", "ddp"};
        const struct json *run = json_at(j, keys[m]);
        cr_expect(json_int(run, "per_device/0/phase_ns/forward") > 0 &&
                  json_int(run, "per_device/0/phase_ns/backward") > 0);
    }
    json_free(j);
    cli_free(&c);
}

/* What NCCL cannot do is said before two modes have trained in vain. */
CliTest(cuda_train, nccl_is_tried_first, 120) {
    static const char *const commands[] = {"compare", "profile"};
    set_up(1, 1);
    setenv("DUET_NCCL", "/nowhere/libnccl.so", 1);
    for (int i = 0; i < 2; i++) {
        struct cli c;
        cli_run(&c,
                "%s --device cuda --devices 2 --data-dir d --model mlp --mlp-hidden 16 "
                "--batch-size 12 --epochs 2 "
                "--allreduce nccl --json j",
                commands[i]);
        cr_expect(c.status == 2 && strstr(c.err, "duet: DDP: ") &&
                      strstr(c.err, "/nowhere/libnccl.so"),
                  "%d %s", c.status, c.err);
        cr_expect(!*c.out && access("j", F_OK), "%s", c.out);
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
    for (int i = 0; i < 2; i++) {
        struct cli c;
        cli_run(&c,
                "compare --modes single,fsdp --device cuda --devices %d --data-dir d --model mlp "
                "--mlp-hidden 16 --batch-size 12 --steps 3 --allreduce nccl --quiet",
                2 + i);
        cr_expect(c.status == 0 && !*c.err && strstr(c.out, says[i]), "%s%s", c.out, c.err);
        cli_free(&c);
    }
}
#endif

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

CliTest(cuda_train, profile, 300) {
    set_up(1, 1);
    struct cli c;
    cli_run(&c, "profile --device cuda --devices 2 --data-dir d --model mlp --mlp-hidden 16 "
                "--batch-size 12 --steps 5 --json j");
    cr_assert(c.status == 0 && !*c.err, "%d %s", c.status, c.err);
    cr_expect(matches(c.out, "^mlp on fashion-mnist, cuda devices"), "%s", c.out);
    struct json *j = json_of("j");
    cr_expect_gt(json_int(j, "ddp/per_device/1/comm_ns"), 0);
    json_free(j);
    cli_free(&c);
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
