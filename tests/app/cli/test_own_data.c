/* Tests a program with its own model and data: every kind of sample trains the same in every mode,
 * samples are read once, estimates know the sizes, and wrong input is refused. */
#include <sys/stat.h>

#include "base/error.h"
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"
#include "tests/app/cli/nets.h"
#include "tests/harness/comma.h"

static void be_program(const char *kind) {
    cli_be_program("tests/app/cli/helper_own_data", "mynet");
    setenv("OWN_DATA", kind, 1);
}

CliTest(own_data, every_kind_trains_with_equal_bits, 120) {
    static const char *const kinds[] = {"floats",         "bytes",    "floats, targets",
                                        "bytes, targets", "function", "no test"};
    for (int i = 0; i < 6; i++) {
        be_program(kinds[i]);
        if (!strcmp(kinds[i], "function")) setenv("OWN_READS", "reads", 1);
        cli_well("compare --devices 2 --steps 3 --batch-size 12 --lr 0.05 --json compare.json");
        struct json *root = json_of("compare.json");
        cr_expect_str_eq(json_text(root, "dp/verdict/verdict"), "identical", "%s", kinds[i]);
        cr_expect_str_eq(json_text(root, "ddp/verdict/verdict"), "identical", "%s", kinds[i]);
        cr_expect_str_eq(json_text(root, "ddp/dataset"), "own");
        json_free(root);
    }
    struct stat reads;
    cr_assert_eq(stat("reads", &reads), 0);
    cr_expect_eq(reads.st_size, 70, "each of 70 samples is read once, not %lld times in all",
                 (long long)reads.st_size);
}

/* 3 outputs, not the 10 that images of digits have at least; the sizes without opening it. */
CliTest(own_data, the_model_follows_the_data, 60) {
    be_program("floats");
    cli_well("train --steps 6 --batch-size 35 --save net.safetensors --json train.json");
    struct json *root = json_of("train.json");
    cr_expect_eq(json_int(root, "train_samples"), 70);
    json_free(root);
    cli_says(0, "mynet on own", "estimate --devices 2 --batch-size 12");
    be_program("function"); /* labels that only a run would read */
    cli_says(2, "give --classes", "estimate --devices 2 --batch-size 12");
    cli_well("estimate --devices 2 --batch-size 12 --classes 3");
    be_program("floats");
    cli_well("train --dataset random --steps 2 --samples 32"); /* other data sets still work */
    cli_well("train --steps 2 --batch-size 12");
}

static void refused(const char *kind, const char *command, int status, const char *says) {
    be_program(kind);
    cli_says(status, says, "%s", command);
}

CliTest(own_data, what_is_refused, 60) {
    refused("floats", "train --samples 5", 2, "--samples");
    refused("floats", "train --shape 3x4x4", 2, "--shape");
    refused("floats", "train --data-dir .", 2, "--data-dir");
    refused("floats", "train --loss mse", 2, "the program's data has labels");
    refused("floats, targets", "train --loss cross-entropy", 2, "the program's data has targets");
    refused("floats, targets", "train --classes 4", 2, "the targets of own have 3 numbers");
    refused("floats", "train --dataset mine", 2, "own");
    refused("fails", "train --steps 1", 1, "its function returned 5 for sample 33");
    refused("negative", "train", 2, "label -1 of sample 3");
    refused("empty", "train", 2, "0 samples");
    refused("test alone", "train", 2, "test data without training data");
    cli_be_program("examples/my_model", "mynet");
    cli_says(2, "this program supplies no data", "train --dataset own");
}

/* Everything a command writes that does not depend on time. */
static void write_all(void) {
    be_program("floats");
    cli_well("train --mode ddp --devices 2 --steps 3 --batch-size 12 --lr 0.05 --log-loss l "
             "--save w --checkpoint c --json j --report r.html --trace t");
    struct cli c; /* without rsvg-convert it says that there is no PNG */
    cli_run(&c, "collective --ranks 4 --pictures pictures");
    cr_assert(!c.status && (!*c.err || strstr(c.err, "no PNG next to it")), "%s", c.err);
    cli_free(&c);
    put_net("net.duet", "duet 1\ninput %x: f32[N, 20]\nparameter w: f32[10, 20]\n"
                        "%1: f32[N, 20] = leaky_relu(%x, slope=0.125)\n"
                        "%2: f32[N, 20] = dropout(%1, p=0.25)\n"
                        "%3: f32[N, 10] = linear(%2, w, none)\nreturn %3\n");
    cli_well("train --model net.duet --dataset random --samples 32 --batch-size 16 --steps 2 --lr "
             "0.125 --log-loss m");
    cli_well("estimate --model net.duet --devices 2 --gpu v100 --what-if link=1.5x --json e");
    cli_well("train --mode single --resume c --steps 4 --batch-size 12 --lr 0.05 --log-loss n "
             "--devices 1 --virtual-devices 2");
}

/* Numbers have a point whatever the locale: the losses are the same to the byte, and no figure of
 * a page, picture or timeline is cut in two by a comma. */
CliTest(own_data, a_decimal_comma_changes_no_number, 120) {
    static const char *const equal[] = {"l", "w", "m", "n", "pictures/ring-4.svg"};
    static const char *const free_of_commas[] = {"r.html", "t", "e"};
    write_all();
    cr_assert_eq(system("mkdir point && mv l w c j r.html t m n e pictures point"), 0);
    comma_make();
    write_all();
    comma_remove();
    for (size_t i = 0; i < sizeof equal / sizeof *equal; i++) {
        char point[64];
        snprintf(point, sizeof point, "point/%s", equal[i]);
        cr_expect(cli_same_file(equal[i], point), "%s: another one with a comma", equal[i]);
    }
    for (size_t i = 0; i < sizeof free_of_commas / sizeof *free_of_commas; i++) {
        char command[200];
        snprintf(command, sizeof command,
                 "grep -cE '[0-9],[0-9]' point/%s >a; grep -cE '[0-9],[0-9]' %s >b; true",
                 free_of_commas[i], free_of_commas[i]);
        cr_assert_eq(system(command), 0);
        cr_expect(cli_same_file("a", "b"), "%s: lines with a comma in a number", free_of_commas[i]);
    }
    json_free(json_of("j"));
}
