/* Tests the library as a user sees it: its header, its names, its installation, and the example
 * program, which uses only the library. */
#include "base/error.h"
#include "base/files/safetensors.h"
#include "tests/examples/small_set.h"
#include "tests/golden/golden.h"

#define EXAMPLE BUILD_DIR "/examples/lenet_from_scratch"

/* ---- header, names, installation ---- */

Test(api_library, header_compiles_alone, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(0, "cp -r duet.h duet {}/ && cd {} && cc -std=c11 -pedantic -Wall -Wextra -Werror "
           "-fsyntax-only -x "
           "c duet.h");
    RUN(0, "! grep -h '#include' duet/*.h | grep -vx '#include <std[a-z]*\\.h>' | "
           "grep -vx '#include \"[a-z]*\\.h\"'");
    if (shell("command -v c++")) cr_skip_test("no C++ compiler here");
    RUN(0, "cd {} && c++ -std=c++11 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c++ duet.h");
}

/* The program of which a header's first comment consists, as {}/NAME.c. */
#define PROGRAM_AT_THE_TOP_OF(header)                                               \
    "{ echo '#include <stdio.h>'; echo '#include \"duet.h\"'; sed -n '/\\*\\/$/q; " \
    "s/^ \\*     //p' " header "; } > {}/$(basename " header " .h).c"

Test(api_library, programs_in_the_header_compile, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(0, "for h in duet.h duet/*.h; do " PROGRAM_AT_THE_TOP_OF(
               "$h") "; done; "
                     "cc -std=c11 -Wall -Wextra -Werror -Wno-unused-function -Wno-unused-parameter "
                     "-fsyntax-only -I. {}/*.c");
}

Test(api_library, defines_what_the_header_says_and_no_other_name, .timeout = 60,
     .init = scratch_make, .fini = scratch_remove) {
    RUN(0, "nm -g --defined-only " BUILD_DIR
           "/libduet.a | awk 'NF == 3 { print $3 }' | sort -u > {}/defined"
           " && grep -hE '^[a-z].*duet_[a-z0-9_]+\\(' duet/*.h | grep -v '^static' | grep -oE "
           "'duet_[a-z0-9_]+\\(' | "
           "tr -d '(' | sort -u > {}/declared && test "
           "-s {}/declared"
           " && diff {}/declared {}/defined");
}

/* The program is built as a user changes it: with one more layer, of 128000 numbers, more than any
 * other has. */
static void one_more_layer(void) {
    RUN(0, "sed -e 's/W4, b4, PARAMS/W4, b4, W5, b5, PARAMS/' "
           "-e 's/{128, 10}, NULL}/{128, 1000}, NULL}/' "
           "-e 's/{\"b4\", 1, {10}, NULL}/{\"b4\", 1, {1000}, NULL}, "
           "{\"W5\", 2, {1000, 10}, NULL}, {\"b5\", 1, {10}, NULL}/' "
           "-e 's/return duet_matmul_add(t, h3, W4, b4);/duet_var *h4 = duet_relu(t, "
           "duet_matmul_add(t, h3, W4, b4)); return duet_matmul_add(t, h4, W5, b5);/' "
           "{}/program.c >{}/deeper.c && cd {} && export "
           "PKG_CONFIG_PATH={}/stage/opt/duet/lib/pkgconfig && cc deeper.c $(pkg-config "
           "--define-variable=prefix={}/stage/opt/duet --cflags --libs duet) -o deeper");
    RUN(0, "{}/deeper --steps 3 --epochs 1 --batch-size 16 --devices 3 --dataset mnist "
           "--data-dir {} --save {}/deeper.safetensors");
    RUN(0, "head -c 999 {}/deeper.safetensors | grep -aq '\"W5\": .*\\[1000, 10\\]'");
}

Test(api_library, installs_for_pkg_config, .timeout = 300, .init = data_make,
     .fini = scratch_remove) {
    if (SANITIZED) cr_skip_test("a sanitizer's library needs the sanitizer's flags");
    if (shell("command -v pkg-config")) cr_skip_test("no pkg-config here");
    RUN(0, "make --no-print-directory B=" BUILD_DIR " PREFIX=/opt/duet DESTDIR={}/stage install");
    RUN(0, "test -x {}/stage/opt/duet/bin/duet && cp examples/lenet_from_scratch.c {}/program.c");
    /* The .pc file names the final place, but the files are still in the stage folder: the prefix
     * is overridden. */
    RUN(0, "cd {} && export PKG_CONFIG_PATH={}/stage/opt/duet/lib/pkgconfig && pkg-config "
           "--modversion duet"
           " && cc program.c $(pkg-config --define-variable=prefix={}/stage/opt/duet --cflags "
           "--libs duet) -o program");
    RUN(0, "{}/program --steps 1 --epochs 1 --dataset synthetic --devices 1");
    cr_assert_not_null(strstr(output(), "1 of 235 steps: "), "%s", output());
    one_more_layer();
    RUN(0, "cd {}/stage/opt/duet/share && grep -q '^.TH \"duet\" 1' man/man1/duet.1"
           " && bash -n bash-completion/completions/duet && ls doc/duet/examples/my_model.c");
    RUN(0, "diff -r examples {}/stage/opt/duet/share/doc/duet/examples");
    /* The library links into programs that are built in other ways: with a sanitizer, in C++ and,
     * where the other libraries are there for it, without shared ones. */
    RUN(0,
        "export PKG_CONFIG_PATH={}/stage/opt/duet/lib/pkgconfig"
        " && words=$(pkg-config --static --define-variable=prefix={}/stage/opt/duet --cflags "
        "--libs duet) && others=$(pkg-config --static --libs-only-l duet | sed s/-lduet//)"
        " && cc -fsanitize=address examples/all_reduce.c $words -o {}/p && {}/p"
        " && { ! command -v c++ || { c++ tests/examples/installed.cc $words -o {}/p && {}/p; }; }"
        " && { ! echo 'int main(void) { return 0; }' | cc -static -x c - -o {}/p $others || "
        "{ cc -static examples/all_reduce.c $words -o {}/p && {}/p; }; }");
    /* Programs at the tops of headers. */
    RUN(0, "export PKG_CONFIG_PATH={}/stage/opt/duet/lib/pkgconfig && words=$(pkg-config --static "
           "--define-variable=prefix={}/stage/opt/duet --cflags --libs duet) && "
           "for h in duet.h duet/core.h duet/distributed.h; do " PROGRAM_AT_THE_TOP_OF(
               "$h") "; p={}/$(basename $h .h) && cc $p.c $words -o $p && $p | sort; done");
    cr_expect_str_eq(output(), "0.4268\n0.4647\n0.5114\n0.5760\n0.6931\n" /* as PyTorch's */
                               "2\n4\n6\n8\nrank 0: 3\nrank 1: 3\n");
    /* A program that is the whole command. */
    RUN(0, "cp examples/my_model.c {}/mynet.c && cd {} && export "
           "PKG_CONFIG_PATH={}/stage/opt/duet/lib/pkgconfig"
           " && cc mynet.c $(pkg-config --define-variable=prefix={}/stage/opt/duet --cflags "
           "--libs duet) -o mynet");
    RUN(0, "{}/mynet compare --device cpu --steps 1 --dataset synthetic --samples 64 --batch-size "
           "32");
    cr_assert_not_null(strstr(output(), "DDP = single: identical to the bit"), "%s", output());
}

/* The chapter's numbers. */
Test(api_chapter_example, sums_and_scatters_as_the_chapter, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(0, BUILD_DIR "/examples/chapter_demos | sed s/cuda/cpu/g");
    cr_expect_str_eq(
        output(),
        "b1 weight:\n  [[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] on cpu(0)\n"
        "b1 grad: None\nbefore allreduce:\n  [[1, 1]] on cpu(0)\n  [[2, 2]] on cpu(1)\n"
        "after allreduce:\n  [[3, 3]] on cpu(0)\n  [[3, 3]] on cpu(1)\n"
        "input:\n  [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14], [15, 16, 17, 18, 19]] "
        "on cpu(0)\nload into [cpu(0), cpu(1)]\n"
        "output:\n  [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]] on cpu(0)\n"
        "  [[10, 11, 12, 13, 14], [15, 16, 17, 18, 19]] on cpu(1)\n");
}

/* PyTorch's text on DataParallel, in its words: 30 samples over 4 devices are 8 8 8 6, the last 10
 * are 3 3 3 1. The threads' lines come in any order. */
Test(api_data_parallel_example, says_what_each_replica_sees, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    static const char *const inputs[] = {"10", "3, 32, 32"}, *const words[] = {"", "complex"};
    static const struct { int lines, samples; } replicas[] = {{9, 8}, {3, 6}, {3, 3}, {1, 1}};
    for (int model = 0; model < 2; model++) {
        char line[160];
        snprintf(line, sizeof line,
                 BUILD_DIR "/examples/data_parallel 4 %s | sort | uniq -c | sed 's/^ *//'",
                 words[model]);
        RUN(0, line);
        for (int i = 0; i < 4; i++) {
            snprintf(line, sizeof line,
                     "%d \tIn Model: input size torch.Size([%d, %s]) output size torch.Size([%d, "
                     "10])\n",
                     replicas[i].lines, replicas[i].samples, inputs[model], replicas[i].samples);
            cr_assert_not_null(strstr(output(), line), "%s: %s", line, output());
        }
        snprintf(line, sizeof line,
                 "3 Outside: input size torch.Size([30, %s]) output_size torch.Size([30, 10])\n",
                 inputs[model]);
        cr_assert_not_null(strstr(output(), line), "%s: %s", line, output());
    }
    RUN(2, BUILD_DIR "/examples/data_parallel 65");
    cr_assert_not_null(strstr(output(), "data_parallel: devices: 65: give 1 to 64"), "%s",
                       output());
    RUN(2, BUILD_DIR "/examples/data_parallel --help");
    cr_assert_not_null(strstr(output(), "data_parallel [DEVICES [simple | complex]]"), "%s",
                       output());
}

/* ---- the example ---- */

enum { PARAMS = 8, LARGEST = 800 * 128 };
static const struct {
    const char *name;
    int dims;
    int64_t shape[4];
} shapes[PARAMS] = {
    {"W1", 4, {20, 1, 3, 3}}, {"b1", 1, {20}},  {"W2", 4, {50, 20, 5, 5}}, {"b2", 1, {50}},
    {"W3", 2, {800, 128}},    {"b3", 1, {128}}, {"W4", 2, {128, 10}},      {"b4", 1, {10}},
};

static size_t read_param(const char *file, int i, float *values) {
    char path[64];
    struct safetensors s;
    size_t count = 1;
    for (int d = 0; d < shapes[i].dims; d++)
        count *= (size_t)shapes[i].shape[d];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    cr_assert_eq(safetensors_open(&s, path), OK, "%s", error_message());
    cr_assert_eq(
        safetensors_read(&s, "F32", shapes[i].name, shapes[i].dims, shapes[i].shape, values), OK,
        "%s", error_message());
    safetensors_close(&s);
    return count;
}

/* |b - a| / |a - start|: the distance between two runs relative to the distance that one has
 * moved. */
static double difference(int i, const char *start, const char *a, const char *b) {
    static float x[LARGEST], y[LARGEST], z[LARGEST];
    double moved = 0, apart = 0;
    size_t count = read_param(start, i, x);
    read_param(a, i, y);
    read_param(b, i, z);
    for (size_t k = 0; k < count; k++) {
        moved += ((double)y[k] - x[k]) * ((double)y[k] - x[k]);
        apart += ((double)z[k] - y[k]) * ((double)z[k] - y[k]);
    }
    cr_assert_gt(moved, 0, "%s did not learn", shapes[i].name);
    return sqrt(apart / moved);
}

/* One step on n devices equals one step on one device, except for the order of sums. Float sums
 * over up to 256 samples and 25 x 169 products were seen to differ by up to 1.1e-6 in relative L2
 * per tensor. If a device is left out, or the divisor is wrong, the difference is 0.3 and more. The
 * test takes one step only, because SGD amplifies the last bit. The learning rate is large, so that
 * the step is compared and not the rounding of weight + step. */
static const double SAME_STEP = 1e-5;

Test(api_example, any_number_of_devices_takes_the_same_step, .timeout = 200, .init = data_make,
     .fini = scratch_remove) {
    char line[512];
    const char *flags = "--dataset mnist --data-dir {} --epochs 1 --steps 1 --batch-size 250";
    snprintf(line, sizeof line, EXAMPLE " %s --devices 1 --lr 0 --save {}/start", flags);
    RUN(0, line);
    /* 250 over 3 is 84, 84, 82; over 4: 63, 63, 63, 61 */
    for (int n = 1; n <= (test_short() ? 3 : 4); n++) {
        char file[8];
        snprintf(file, sizeof file, "%d", n);
        snprintf(line, sizeof line, EXAMPLE " %s --devices %d --lr 1000 --save {}/%d", flags, n, n);
        RUN(0, line);
        cr_assert_not_null(strstr(output(), "loss 2.30"), "ln 10 at the start: %s", output());
        for (int i = 0; i < PARAMS; i++)
            cr_assert_lt(difference(i, "start", "1", file), SAME_STEP, "%s on %d devices",
                         shapes[i].name, n);
    }
    cr_assert_gt(difference(0, "start", "1", "start"), 0.99,
                 "the measure sees a step that was not taken");
}

Test(api_example, replicas_stay_equal_and_lateness_changes_nothing, .timeout = 200,
     .init = data_make, .fini = scratch_remove) {
    /* The example compares its replicas to the bit after each step and would end with 3. */
    RUN(0, EXAMPLE " --dataset mnist --data-dir {} --epochs 1 --steps 3 --devices 3 --save {}/cpu");
    cr_assert_not_null(strstr(output(), "sec/epoch on [cpu(0), cpu(1), cpu(2)]\n"), "%s", output());
    cr_assert_not_null(strstr(output(), "test acc: 0."), "%s", output());
    RUN(0, EXAMPLE " --dataset mnist --data-dir {} --epochs 1 --steps 3 --devices 3 --save {}/late "
                   "--device cpu-late");
    RUN(0, "cmp {}/cpu {}/late");
    /* The third device gets no sample. */
    RUN(0,
        EXAMPLE " --dataset mnist --data-dir {} --epochs 1 --steps 1 --num_gpus 3 --batch_size 2");
}

/* Exercise 3 of the chapter: other devices add, in the same order. */
Test(api_example, sharded_sums_have_the_same_bits, .timeout = 100, .init = data_make,
     .fini = scratch_remove) {
    const char *flags = "--dataset mnist --data-dir {} --epochs 1 --steps 3 --batch-size 48";
    char line[512];
    for (int n = 2; n <= 3; n++) {
        snprintf(line, sizeof line, EXAMPLE " %s --devices %d --save {}/first", flags, n);
        RUN(0, line);
        snprintf(line, sizeof line, EXAMPLE " %s --devices %d --sharded --save {}/sharded", flags,
                 n);
        RUN(0, line);
        RUN(0, "cmp {}/first {}/sharded");
    }
}

Test(api_example, broken_allreduce_is_caught, .timeout = 100, .init = data_make,
     .fini = scratch_remove) {
    RUN(3, EXAMPLE " --dataset mnist --data-dir {} --epochs 1 --steps 2 --devices 2 --broken "
                   "--save {}/broken");
    cr_assert_not_null(strstr(output(), "replicas differ: the gradient of W1: cpu(1)"), "%s",
                       output());
    RUN(0, "test ! -e {}/broken");
    /* On one device the mistake does no harm. */
    RUN(0, EXAMPLE " --dataset mnist --data-dir {} --epochs 1 --steps 2 --devices 1 --broken");
}

Test(api_example, says_what_is_wrong, .timeout = 100, .init = data_make, .fini = scratch_remove) {
    static const struct {
        int status;
        const char *words, *says;
    } bad[] = {
        {2, "--devices 0", " --devices:"},
        {2, "--devices 65", " --devices:"},
        {2, "--epochs two", " --epochs:"},
        {2, "--lr -1", " --lr:"},
        {2, "--lr nan", " --lr:"},
        {2, "--batch-size", " --batch-size:"},
        {2, "--gpus 2", " --gpus:"},
        {2, "--device gpu", "gpu: expected"},
        {2, "--dataset cifar", "'cifar': expected"},
        {1, "--data-dir /nowhere", "/nowhere"},
        {1, "--dataset mnist --data-dir {} --epochs 1 --steps 1 --save /nowhere/x", "/nowhere/x"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char line[256];
        snprintf(line, sizeof line, EXAMPLE " %s 2>&1 >{}/stdout", bad[i].words);
        RUN(bad[i].status, line);
        cr_assert_not_null(strstr(output(), bad[i].says), "%s: %s", bad[i].words, output());
        cr_assert_eq(strchr(output(), '\n'), output() + strlen(output()) - 1, "one line: %s",
                     output());
    }
}
