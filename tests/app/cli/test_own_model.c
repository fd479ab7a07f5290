/* Tests models that are not Duet's: a user's program, which duet_command makes the whole command,
 * and a file with --model FILE. */
#include "base/error.h"
#include "cli/options/run_options.h"
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"
#include "tests/app/cli/nets.h"

#define SMALL "--dataset synthetic --samples 96 --batch-size 32 --epochs 1"

/* DP and DDP have the bits of single, and so the model is what trained. */
static void expect_identical(const char *path, const char *model, int parameters) {
    struct json *root = json_of(path);
    static const char *const ways[] = {"dp", "ddp"};
    for (int i = 0; i < 2; i++) {
        cr_expect_str_eq(json_text(root, "%s/verdict/verdict", ways[i]), "identical");
        cr_expect_str_eq(json_text(root, "%s/model", ways[i]), model);
        cr_expect_eq(json_at(root, "%s/parameters", ways[i])->count, parameters);
    }
    json_free(root);
}

/* ---- a program ---- */

CliTest(own_model, a_program_is_the_whole_command, 120) {
    cli_be_program("examples/my_model", "mynet");
    cli_well("compare --devices 4 " SMALL " --json compare.json");
    expect_identical("compare.json", "mynet", 10);

    cli_well("profile --devices 2 --steps 2 " SMALL " --json profile.json --trace trace.json");
    struct json *root = json_of("profile.json");
    cr_expect_str_eq(json_text(root, "ddp/model"), "mynet");
    cr_expect(json_int(root, "ddp/per_device/0/memory_peak") > 0);
    json_free(root);

    cli_says(0, "DDP: mynet on synthetic",
             "train --mode ddp --steps 2 " SMALL " --json train.json --save mynet.safetensors");
    root = json_of("train.json");
    cr_expect_str_eq(json_text(root, "parameters/0"), "conv1.weight");
    cr_expect_str_eq(json_text(root, "buffers/2"), "bn1.num_batches_tracked");
    json_free(root);
    cli_well("train --init-from mynet.safetensors --steps 1 --sync-bn --mode ddp " SMALL);
    cli_well("train --model convnet --steps 1 " SMALL); /* Duet's own models still work */
}

CliTest(own_model, a_program_has_its_own_name, 60) {
    cli_be_program("examples/my_model", "mynet");
    cli_says(0, "mynet: the model mynet|usage: mynet COMMAND", "--help");
    cli_says(0, "mynet (default), lenet, convnet", "train --help");
    cli_says(0, "usage: mynet scale [options]|!duet scale", "scale --help");
    cli_fails(2, "unknown command: tarin: did you mean train?", "tarin");
    cli_fails(2, "no effect in mynet compare|use mynet train", "compare --save x " SMALL);
    cli_fails(2, "expected mynet, lenet|did you mean mynet?", "train --model mynett");
    cli_fails(2, "no effect with model mynet", "train --init d2l");
    cli_fails(2, "fc1.weight: dimension 1 is 0",
              "train --dataset random --shape 1x3x3 --samples 8 --batch-size 4");
}

static void describe(duet_module *m, void *context) {
    (void)context;
    duet_module_linear(m, "fc", 10, duet_module_classes(m), 1);
}

static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    return duet_layer(t, 0, duet_flatten(t, x));
}

/* Where no loss is given, it is the model's. */
Test(own_model, a_program_has_its_own_loss, .timeout = 60) {
    const struct duet_model own = {.name = "own",
                                   .sample = {10, 1, 1},
                                   .describe = describe,
                                   .forward = forward,
                                   .loss = DUET_MSE};
    static const struct {
        char words[3][24];
        enum duet_loss loss;
    } cases[] = {{{"--steps=1", "--dataset=random", "--seed=1"}, DUET_MSE},
                 {{"--model=own", "--dataset=random", "--seed=1"}, DUET_MSE},
                 {{"--model=lenet", "--dataset=random", "--seed=1"}, DUET_CROSS_ENTROPY},
                 {{"--loss=cross-entropy", "--dataset=random", "--seed=1"}, DUET_CROSS_ENTROPY}};
    for (int i = 0; i < 4; i++) {
        struct run_config config;
        char words[3][24], *argv[3] = {words[0], words[1], words[2]};
        struct options options = {.command = "train"};
        memcpy(words, cases[i].words, sizeof words);
        run_config_default(&config);
        run_config_own(&config, &own);
        cr_expect_eq(run_options_parse(&options, 3, argv, &config), OK, "%s", error_message());
        cr_expect_eq(run_config_check(&config), OK, "%s", error_message());
        cr_expect_eq(config.model.options.loss, cases[i].loss, "case %d", i);
    }
}

/* ---- a file ---- */

CliTest(own_model, a_file_trains_with_equal_bits, 60) {
    put_norm_model("net.duet");
    cli_well("compare --devices 4 --model net.duet " SMALL " --json j");
    expect_identical("j", "net.duet", 6);
    cli_well("train --model=net.duet --mode ddp --steps 2 " SMALL " --save w --checkpoint c");
    cli_well("train --model net.duet --steps 1 --init-from w " SMALL);
    /* by default it uses random data, as estimate does */
    cli_well("compare --devices 2 --model net.duet --steps 2 --batch-size 8 --quiet");
    cli_well("profile --devices 2 --model net.duet --steps 2 --batch-size 8");
    /* A run resumes wherever the file is, but not with another text. */
    cr_assert_eq(system("mkdir d && cp net.* d && sed s/eps=1e-05/eps=0.002/ net.duet >other.duet"),
                 0);
    cli_well("train --model d/net.duet --mode ddp --resume c " SMALL);
    cli_fails(2, "--model|a file, fingerprint",
              "train --model other.duet --mode ddp --resume c " SMALL);
}

CliTest(own_model, a_file_that_is_a_pipe_is_read_once, 60) {
    put_norm_model("net.duet");
    cr_assert_eq(mkfifo("pipe", 0600), 0);
    struct cli c;
    cli_start(&c, "train --model ./pipe --init-from net.safetensors --mode ddp --steps 1 " SMALL);
    cr_assert_eq(system("cat net.duet >pipe"), 0);
    cli_wait(&c);
    cr_expect_eq(c.status, 0, "%s", c.err);
    cli_free(&c);
}

CliTest(own_model, what_is_wrong_with_a_file_is_named, 60) {
    cli_put("net.duet", "duet 1\ninput %x: f32[N, 784]\nparameter w: f32[10, 100]\n"
                        "%1: f32[N, 10] = linear(%x, w, none)\nreturn %1\n");
    cli_fails(2, "net.duet: line 4: linear w: takes 100 inputs, but was given (2, 784)",
              "train --model net.duet --dataset random");
    cr_assert_eq(system("sed -i s/100/784/ net.duet && echo 'Sequential(' >print.txt"), 0);
    cli_fails(2, "no effect with model net.duet: it has no BatchNorm",
              "train --mode ddp --sync-bn --model net.duet --dataset random");
    cli_fails(2, "print.txt: line 1|begins with: duet 1: write it with duet.export",
              "train --model ./print.txt");
    cr_assert_eq(system("sed -i s/linear.*/narrow\\(%x,dim=1,start=0,length=10\\)/ net.duet"), 0);
    cli_fails(2, "net.duet: line 4: the result depends on no trained parameter",
              "estimate --model net.duet");
    cli_fails(1, "--model: nowhere/net.duet: No such file", "train --model nowhere/net.duet");
    cli_fails(2, "expected lenet, convnet", "train --model alexnet");
}
