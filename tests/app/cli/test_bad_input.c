/* Passes bad flags and values to the command. It must end with the right exit status and one line
 * on stderr that names the value, and leave no process and no file. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/run.h"

enum { WRONG_USAGE = 2, FAILED_RUNNING = 1 };

struct bad {
    int status;
    const char *words; /* what the line must contain, separated by '|' */
    const char *args;
};

static void all_fail(const struct bad *table, size_t rows) {
    for (size_t i = 0; i < rows; i++)
        cli_fails(table[i].status, table[i].words, "%s", table[i].args);
}

#define ALL_FAIL(table) all_fail(table, sizeof(table) / sizeof *(table))

/* ---- words ---- */

CliTest(cli_bad_input, words, 300) {
    static const struct bad table[] = {
        {2, "unknown command|bench|--help", "bench"},
        {2, "unknown command|--mode", "--mode dp"},
        {2, "unknown option|--bogus|--help", "train --bogus"},
        {2, "unknown option|--bogus=3", "compare --bogus=3"},
        {2, "unknown option|--dev:|did you mean --device?", "train --dev 2"},
        {2, "unknown option|--num_gpus:|did you mean --devices?", "train --num_gpus 2"},
        {2, "unknown option|--gpus:|did you mean --devices N, or --gpu NAME?", "estimate --gpus 2"},
        {2, "unknown option|--devcies|did you mean --devices?", "train --devcies=2"},
        {2, "unknown option|--no_shufle|did you mean --no-shuffle?", "train --no_shufle"},
        {2, "unknown option|-", "train -"},
        {2, "--devices|no value|N", "train --devices"},
        {2, "--report|no value|FILE", "compare --report --pictures slides"},
        {2, "--save|empty|FILE", "train --save ''"},
        {2, "--no-shuffle|no value|3", "train --no-shuffle=3"},
        {2, "--mode: ''|single, dp, ddp or fsdp", "train --mode="},
        {2, "--model|empty|NAME", "train --model ''"},
        {2, "--device-memory: ''|64M", "train --device-memory="},
        {2, "lenet5|lenet, convnet, mlp, resnet18, simple, complex, wide or branches",
         "train --model lenet5"},
        {2, "nccl needs GPUs",
         "train --mode ddp --device cpu --dataset synthetic --samples 300 --steps 1 "
         "--allreduce nccl"},
        {2, "--allreduce: mpi: it is for several machines|mpirun",
         "train --mode ddp --dataset synthetic --allreduce mpi"},
        {2, "--dataset|cifar|synthetic", "train --dataset cifar"},
        {2, "--cuda-math|library|emulated|--device cuda",
         "train --device auto --dataset synthetic --samples 300 --cuda-math library"},
        {2, "--device|cuda|cpu", "train --device cuda --dataset synthetic"},
        {2, "--mlp-hidden|'x'|integers", "train --model mlp --mlp-hidden 8,x"},
        {2, "--mlp-hidden|parameters", "train --model mlp --mlp-hidden 1000000,1000000"},
    };
    setenv("CUDA_VISIBLE_DEVICES", "", 1); /* hides the GPU of a machine that has one */
    ALL_FAIL(table);
}

CliTest(cli_bad_input, numbers, 300) {
    static const struct bad table[] = {
        {2, "--devices|'0'|1 to 64", "train --mode dp --devices 0"},
        {2, "--devices|'-1'|1 to 64", "train --mode ddp --devices -1"},
        {2, "--devices|'99999999999999999999'", "train --devices 99999999999999999999"},
        {2, "--devices|'2x'", "profile --devices 2x"},
        {2, "--virtual-devices|'on'", "train --virtual-devices on"},
        {2, "--virtual-devices|6|4 devices|8|off",
         "train --mode ddp --devices 4 --virtual-devices 6"},
        {2, "--batch-size|3|4 devices", "train --mode ddp --devices 4 --batch-size 3"},
        {2, "--batch-size|1|4 devices", "profile --batch-size 1"},
        {2, "--batch-size|'0'", "train --batch-size 0"},
        {2, "--device-memory|'1..5G'", "train --device-memory 1..5G"},
        {2, "--device-memory|'-1G'", "train --mode dp --device-memory -1G"},
        {2, "--device-memory|'2097151'|from 2M to", "train --mode ddp --device-memory 2097151"},
        {2, "--lr|'nan'", "train --lr nan"},
        {2, "--lr|'-0.1'", "train --mode ddp --lr -0.1"},
        {2, "--lr|'0,1'", "train --lr=0,1"},
        {2, "--timeout|'0'", "train --mode ddp --timeout 0"},
        {2, "--epochs|'0'", "demo --epochs 0"},
        {2, "--workers|'65'|0 to 64", "train --workers 65"},
        {2, "--seed|'18446744073709551616'|-9223372036854775808 to 18446744073709551615",
         "train --seed 18446744073709551616"},
        {2, "--bucket-cap-mb|'0'", "train --mode ddp --bucket-cap-mb 0"},
    };
    ALL_FAIL(table);
}

/* A path of 512 bytes or more does not fit into the configuration. It must not be cut. */
CliTest(cli_bad_input, long_path, 60) {
    char path[601];
    memset(path, 'p', 600);
    path[600] = 0;
    cli_fails(2, "--save|pppp|511", "train --save %s", path);
}

/* Two results must not go to the same file, however it is named and whether it exists or not. */
CliTest(cli_bad_input, one_file_for_two_outputs, 60) {
    cr_assert(!mkdir("sub", 0777) && !symlink(".", "here") && !symlink("old", "link"));
    cr_assert_eq(system("echo before >old; ln old hard"), 0);
    static const struct bad table[] = {
        {2, "--save and --json|same file", "train --save x --json x"},
        {2, "--log-loss and --json|./x and x|same file", "train --log-loss ./x --json x"},
        {2, "--save and --log-loss|sub/../x|same file",
         "train --mode ddp --save sub/../x --log-loss x"},
        {2, "--save and --json|here/x|same file", "train --json here/x --save x"},
        {2, "--init-from and --trace|same file", "train --init-from old --trace old"},
        {2, "--json and --trace|sub/../x|same file", "train --json sub/../x --trace x"},
        {2, "--save and --log-loss|link|same file", "train --mode dp --save old --log-loss link"},
    };
    ALL_FAIL(table);
    char *text = cli_read("old", NULL);
    cr_expect_str_eq(text, "before\n", "nothing is written");
    free(text);
    /* These are different files: the same name in different folders; a hard link, of which only one
     * name is replaced; and no file at all. */
    put_data(60, 20);
    cli_well("train --data-dir d --steps 1 --quiet --save x --log-loss sub/x --json here/y");
    cli_well("train --data-dir d --steps 1 --quiet --log-loss old --json hard");
    text = cli_read("old", NULL);
    cr_expect(!strncmp(text, "step,epoch,loss\n", 16), "%s", text);
    free(text);
    text = cli_read("hard", NULL);
    cr_expect(*text == '{', "%s", text);
    free(text);
    cli_well("train --data-dir d --steps 1 --quiet --log-loss /dev/null --json /dev/null");
}

CliTest(cli_bad_input, sampler, 60) {
    static const struct bad table[] = {
        {2, "--dataset-size|--world-size|--rank", "sampler"},
        {2, "--rank", "sampler --dataset-size 10 --world-size 2"},
        {2, "rank 2|[0, 1]", "sampler --dataset-size 10 --world-size 2 --rank 2"},
        {2, "--world-size|'0'", "sampler --dataset-size 10 --world-size 0 --rank 0"},
        {2, "--dataset-size|'-1'", "sampler --dataset-size -1 --world-size 1 --rank 0"},
        {2, "--epoch|'-1'", "sampler --dataset-size 9 --world-size 1 --rank 0 --epoch -1"},
        {2, "--drop-last|no value|yes",
         "sampler --dataset-size 9 --world-size 1 --rank 0 --drop-last=yes"},
        {2, "unknown option|--shuffled|duet sampler --help", "sampler --shuffled"},
        {2, "unknown option|--ranks|did you mean --rank?", "sampler --ranks 2"},
        {2, "unknown option|all", "devices all"},
        {2, "manual|zsh|man or bash", "manual zsh"},
        {2, "manual|x", "manual man x"},
        {2, "train", "job"},
        {1, "train", "job 55 56 57"},
    };
    ALL_FAIL(table);
}

/* ---- a device memory too small ---- */

CliTest(cli_bad_input, device_memory_too_small, 120) {
    put_data(300, 20);
    static const struct bad table[] = {
        {1, "out of memory on device 0|activations|8 MiB|--device-memory",
         "train --mode single --device-memory 8M --save w --log-loss l --json j"},
        {1, "replica|on device|out of memory on device|8 MiB",
         "train --mode dp --device-memory 8M --save w --log-loss l --json j"},
        {1, "rank|out of memory on device|8 MiB",
         "train --mode ddp --device-memory 8M --save w --log-loss l --json j"},
        {1, "out of memory on device 0|2 MiB", "train --mode dp --devices 4 --device-memory 2M"},
        {1, "rank|out of memory on device", "train --mode ddp --devices 4 --device-memory 2M"},
        {1, "out of memory on device 0|params",
         "train --model mlp --mlp-hidden 100000 --device-memory 64M"},
        {1, "single|out of memory on device 0", "compare --device-memory 8M --json j"},
        /* all ways are tried, and the table above the error shows what each held */
        {1, "DDP: out of memory|larger --device-memory", "profile --device-memory 8M"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        cli_fails(table[i].status, table[i].words, "%s --data-dir d --steps 2", table[i].args);
}

/* ---- outputs that cannot be written ---- */

CliTest(cli_bad_input, unwritable_output, 240) {
    put_data(300, 20);
    static const char *const modes[] = {"single", "dp", "ddp"};
    static const char *const flags[] = {"--save", "--log-loss", "--json"};
    static const char *const paths[] = {"missing/file", ".", "/proc/file"};
    for (int m = 0; m < 3; m++)
        for (int f = 0; f < 3; f++)
            cli_fails(1, paths[(f + m) % 3],
                      "train --mode %s --data-dir d --steps 1 --log-loss l --json j %s %s",
                      modes[m], flags[f], paths[(f + m) % 3]);
    cli_fails(1, "missing/j", "compare --data-dir d --steps 1 --json missing/j");
    cli_fails(1, "missing/j", "profile --data-dir d --steps 1 --json missing/j");
    cli_fails(1, "missing/j", "demo --data-dir d --steps 1 --json missing/j");
}
