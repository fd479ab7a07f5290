/* The library as a user meets it: its header, its names, its installation, and the example program,
 * which uses the library alone. */
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "data/dataset.h"
#include "data/safetensors.h"
#include "tests/harness/harness.h"

#define EXAMPLE BUILD_DIR "/examples/lenet_from_scratch"

static char folder[] = "/tmp/duet-api-XXXXXX";

static void scratch_make(void) {
    cr_assert_not_null(mkdtemp(folder));
}

static void write_file(const char *name, const unsigned char *header, size_t header_bytes,
                       const void *data, size_t bytes) {
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(header, 1, header_bytes, file) + fwrite(data, 1, bytes, file),
                 header_bytes + bytes);
    cr_assert_eq(fclose(file), 0);
}

/* Writes a part of a data set as IDX files; it is small enough for sanitizer builds. Of each size
 * only the two low bytes can differ from 0. */
static void small_set(const char *images, const char *labels, int count, int train) {
    struct dataset set;
    unsigned char high = (unsigned char)(count >> 8), low = (unsigned char)count;
    cr_assert_eq(dataset_synthetic(&set, 0, count, train), OK, "%s", error_message());
    write_file(images, (unsigned char[]){0, 0, 8, 3, 0, 0, high, low, 0, 0, 0, 28, 0, 0, 0, 28}, 16,
               set.images, (size_t)count * 784);
    write_file(labels, (unsigned char[]){0, 0, 8, 1, 0, 0, high, low}, 8, set.labels,
               (size_t)count);
    dataset_free(&set);
}

static void data_make(void) {
    scratch_make();
    small_set("train-images-idx3-ubyte", "train-labels-idx1-ubyte", 600, 1);
    small_set("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", 100, 0);
}

/* Runs a shell command, in which {} stands for the scratch folder, and returns its exit status. Its
 * output goes to the file `out` in that folder. */
static int shell(const char *command) {
    char text[2048] = "{ ";
    size_t used = 2;
    for (const char *c = command; *c && used < sizeof text - 100; c++) {
        if (c[0] == '{' && c[1] == '}') {
            used += (size_t)snprintf(text + used, sizeof text - used, "%s", folder);
            c++;
        } else {
            text[used++] = *c;
        }
    }
    snprintf(text + used, sizeof text - used, "; } >%s/out 2>&1", folder);
    int status = system(text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static const char *output(void) {
    static char text[8192];
    char path[64];
    snprintf(path, sizeof path, "%s/out", folder);
    FILE *file = fopen(path, "r");
    size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[n] = 0;
    if (file) fclose(file);
    return text;
}

static void scratch_remove(void) {
    cr_assert_eq(shell("rm -rf {}.gone && mv {} {}.gone && rm -rf {}.gone"), 0);
}

#define RUN(want, command) cr_assert_eq(shell(command), (want), "%s: %s", command, output())

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

/* ---- header, names, installation ---- */

Test(api_library, header_compiles_alone, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(0, "cp duet.h {}/ && cd {} && cc -std=c11 -pedantic -Wall -Wextra -Werror -fsyntax-only -x "
           "c duet.h");
    RUN(0, "! grep '#include' duet.h | grep -vx '#include <std[a-z]*\\.h>'");
    if (shell("command -v c++")) cr_skip_test("no C++ compiler here");
    RUN(0, "cd {} && c++ -std=c++11 -pedantic -Wall -Wextra -Werror -fsyntax-only -x c++ duet.h");
}

Test(api_library, defines_what_the_header_says_and_no_other_name, .timeout = 60,
     .init = scratch_make, .fini = scratch_remove) {
    RUN(0, "nm -g --defined-only " BUILD_DIR
           "/libduet.a | awk 'NF == 3 { print $3 }' | sort -u > {}/defined"
           " && grep -oE 'duet_[a-z0-9_]+\\(' duet.h | tr -d '(' | sort -u > {}/declared && test "
           "-s {}/declared"
           " && diff {}/declared {}/defined");
}

Test(api_library, installs_for_pkg_config, .timeout = 300, .init = scratch_make,
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
    cr_assert_not_null(strstr(output(), "sec/epoch on [cpu(0)]"), "%s", output());
    RUN(0, "cd {}/stage/opt/duet/share && grep -q '^.TH \"duet\" 1' man/man1/duet.1"
           " && bash -n bash-completion/completions/duet && ls doc/duet/examples/my_model.c");
    /* The library links into programs that are built in other ways. */
    RUN(0,
        "printf '#include <duet.h>\\nint main(void) { return duet_time() > 0 ? 0 : 1; }\\n' >{}/p.c"
        " && cp {}/p.c {}/p.cc && export PKG_CONFIG_PATH={}/stage/opt/duet/lib/pkgconfig"
        " && words=$(pkg-config --static --define-variable=prefix={}/stage/opt/duet --cflags "
        "--libs duet)"
        " && cc -fsanitize=address {}/p.c $words -o {}/p && {}/p"
        " && { ! command -v c++ || { c++ {}/p.cc $words -o {}/p && {}/p; }; }");
    /* A program that is the whole command. */
    RUN(0, "cp examples/my_model.c {}/mynet.c && cd {} && export "
           "PKG_CONFIG_PATH={}/stage/opt/duet/lib/pkgconfig"
           " && cc mynet.c $(pkg-config --define-variable=prefix={}/stage/opt/duet --cflags "
           "--libs duet) -o mynet");
    RUN(0, "{}/mynet compare --device cpu --steps 1 --dataset synthetic --samples 64 --batch-size "
           "32");
    cr_assert_not_null(strstr(output(), "DDP = single: identical to the bit"), "%s", output());
}

/* PyTorch's text on DataParallel: 30 samples over 4 devices are 8 8 8 6, the last 10 are 3 3 3 1.
 * The threads' lines come in any order. */
Test(api_data_parallel_example, says_what_each_replica_sees, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(0, BUILD_DIR
        "/examples/data_parallel 4 | sed 's/ [a-z]*(\\([0-9]\\))$/ \\1/' | sort | uniq -c");
    for (int r = 0; r < 4; r++) {
        char line[96];
        snprintf(line, sizeof line, "3 inside model: input (%d, 10), output (%d, 10) on %d\n",
                 r < 3 ? 8 : 6, r < 3 ? 8 : 6, r);
        cr_assert_not_null(strstr(output(), line), "%s: %s", line, output());
        snprintf(line, sizeof line, "1 inside model: input (%d, 10), output (%d, 10) on %d\n",
                 r < 3 ? 3 : 1, r < 3 ? 3 : 1, r);
        cr_assert_not_null(strstr(output(), line), "%s: %s", line, output());
    }
    cr_assert_not_null(strstr(output(), "3 outside: input (30, 10), output (30, 10)"), "%s",
                       output());
    RUN(2, BUILD_DIR "/examples/data_parallel 0");
    cr_assert_not_null(strstr(output(), "data_parallel: devices: 0: give 1 to 64"), "%s", output());
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
    cr_assert_eq(safetensors_read(&s, shapes[i].name, shapes[i].dims, shapes[i].shape, values), OK,
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
        EXAMPLE " --dataset mnist --data-dir {} --epochs 1 --steps 1 --devices 3 --batch-size 2");
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
        {2, "--devices 0", " 0:"},
        {2, "--devices 65", " 65:"},
        {2, "--epochs two", " two:"},
        {2, "--lr -1", " -1:"},
        {2, "--lr nan", " nan:"},
        {2, "--batch-size", " --batch-size:"},
        {2, "--gpus 2", " --gpus:"},
        {2, "--device gpu", "gpu: there"},
        {2, "--dataset cifar", "'cifar': there are"},
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
