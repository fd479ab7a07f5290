/* Training on nvcc's own code: a step of each model, every way of training and every algorithm of
 * allreduce, from PTX and from the kernels' text compiled as C++. The weights are the same to the
 * bit.
 *
 * exp and log are the only functions of which a GPU has its own versions. The losses call those for
 * doubles, whose error is far below the last place of a float, so the weights must be equal after
 * them too. */
#include "tests/harness/harness.h"

#ifndef CUDA_EMULATION
Test(ptx_train, needs_the_emulated_runtime) {
    cr_skip_test("make EMULATION=1 builds with it: docs/cuda.md");
}
#else
#include "tests/cli/data.h"
#include "tests/cli/run.h"
#include "tests/stand_ins/ptx/library.h"

static char ptx_folder[PATH_MAX + 64];

static void begin(void) {
    cli_folder_make();
    snprintf(ptx_folder, sizeof ptx_folder, "%s/%s", cli_root_path, PTX_FOLDER);
}

static void need_ptx(void) {
    if (access(ptx_folder, R_OK)) cr_skip_test("no nvcc here: there is no PTX");
}

static void from_ptx(int ptx) {
    setenv("EMULATED_PTX", ptx ? ptx_folder : "0", 1);
    setenv("EMULATED_PTX_LOG", "ran", 1);
}

/* The kernels that ran from PTX since the last call, by name. */
static void expect_ran(const char *what, const char *kernel) {
    char line[220], *text = cli_read("ran", NULL);
    cr_assert_not_null(text, "%s: nothing ran from PTX", what);
    snprintf(line, sizeof line, "%s\n", kernel);
    cr_expect(strstr(text, line), "%s: %s did not run from PTX: %s", what, kernel, text);
    free(text);
    cr_assert_eq(remove("ran"), 0);
}

/* One run of each kind, with `options` alike. */
static void same_weights(const char *options, const char *kernel) {
    for (int ptx = 0; ptx < 2; ptx++) {
        from_ptx(ptx);
        cli_well("train --device cuda --quiet --seed 3 %s --save w%d.safetensors", options, ptx);
    }
    cr_expect(cli_same_file("w0.safetensors", "w1.safetensors"), "%s: other weights", options);
    expect_ran(options, kernel);
}

/* Those that the program names when it does not know one: "there are lenet, ... and branches". */
static int models_there_are(void) {
    struct cli c;
    int count = 2;
    cli_run(&c, "train --model nowhere");
    const char *at = strstr(c.err, "there are ");
    cr_assert(c.status == 2 && at, "%s", c.err);
    for (; *at; at++)
        count += *at == ',';
    cli_free(&c);
    return count;
}

Test(ptx_train, a_step_of_each_model_has_the_weights_of_its_text, .timeout = 240, .init = begin,
     .fini = cli_folder_remove) {
    static const char *const models[] = {"mlp --optimizer adam --lr 0.001",
                                         "lenet --momentum 0.9 --nesterov --weight-decay 0.01",
                                         "convnet --dropout 0.4",
                                         "simple --loss mse",
                                         "complex",
                                         "branches"};
    char options[200];
    need_ptx();
    /* resnet18 has a test of its own, and wide is the mlp with other widths */
    cr_assert_eq(models_there_are(), 2 + (int)(sizeof models / sizeof *models));
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        snprintf(options, sizeof options,
                 "--dataset random --samples 3 --batch-size 3 --steps 1 --model %s", models[i]);
        same_weights(options, "loss_sum");
    }
    same_weights("--dataset random --samples 2 --batch-size 2 --steps 1 --model mlp --tf32",
                 "product<4,4>");
}

/* Of pictures of 8 x 8, so that it takes a second. */
Test(ptx_train, a_step_of_resnet18_too, .timeout = 240, .init = begin, .fini = cli_folder_remove) {
    need_ptx();
    put_data(2, 2);
    put_images_of("d/train-images-idx3-ubyte", 2051, 2, 2, 8, 8);
    put_images_of("d/t10k-images-idx3-ubyte", 2051, 2, 2, 8, 8);
    same_weights("--data-dir d --batch-size 2 --steps 1 --model resnet18 --sync-bn",
                 "batch_norm_forward");
}

/* Ranks that share a GPU, and ranks with a GPU each. */
Test(ptx_train, every_algorithm_of_allreduce_has_the_weights_of_its_text, .timeout = 240,
     .init = begin, .fini = cli_folder_remove) {
    static const char *const algorithms[] = {"naive", "oneshot", "direct", "ring", "tree", "fused"};
    char options[200];
    need_ptx();
    for (int gpus = 1; gpus <= 3; gpus += 2) {
        setenv("EMULATED_GPUS", gpus == 1 ? "1" : "3", 1);
        for (int a = 0; a < 6; a++) {
            if (test_short() && a % 3 != gpus % 3) continue;
            snprintf(options, sizeof options,
                     "--mode ddp --devices 3 --allreduce %s --dataset random --samples 12 "
                     "--batch-size 6 --steps 2 --model simple",
                     algorithms[a]);
            same_weights(options, gpus == 1 ? "sum_kernel" : "spin_kernel");
        }
    }
    same_weights("--mode dp --devices 3 --dataset random --samples 6 --batch-size 6 --steps 1 "
                 "--model simple",
                 "sum_kernel");
}
#endif
