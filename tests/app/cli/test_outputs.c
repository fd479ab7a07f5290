/* Tests the files that a command writes: they are complete, at the requested paths, and keep their
 * permissions. If one fails, the others are still written. */
#include "base/error.h"
#include "base/files/safetensors.h"
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"
#include "tests/app/cli/run.h"

#define TRAIN "train --data-dir d --batch-size 64 --quiet"

enum { FILES = 2 }; /* the folder first has golden/ and d/, a data set of 10 batches */

static void outputs_make(void) {
    cli_folder_make();
    put_data(640, 64);
}
#define OutputsTest(name) \
    Test(cli_outputs, name, .timeout = 300, .init = outputs_make, .fini = cli_folder_remove)

static void permissions_are(const char *path, mode_t want) {
    struct stat s;
    cr_assert_eq(stat(path, &s), 0, "%s was not written", path);
    cr_assert_eq(s.st_mode & 07777, want, "%s: %o", path, s.st_mode & 07777);
}

static void weights_are_whole(const char *path) {
    struct safetensors s;
    cr_assert_eq(safetensors_open(&s, path), OK, "%s", error_message());
    cr_assert_eq(s.count, 8, "LeNet has 8 parameters");
    safetensors_close(&s);
}

/* Every mode writes its files; rank 0 of DDP is a process of its own. */
OutputsTest(every_mode_writes) {
    static const char *const modes[] = {"single", "dp --devices 2", "ddp --devices 2"};
    for (int i = 0; i < 3; i++) {
        int files = cli_files();
        cli_well(TRAIN
                 " --steps 1 --virtual-devices 2 --mode %s --save w%d --log-loss l%d --json j%d",
                 modes[i], i, i, i);
        cr_assert_eq(cli_files(), files + 3, "mode %s", modes[i]);
    }
    weights_are_whole("w0");
    cr_assert(cli_same_file("w0", "w1") && cli_same_file("w0", "w2"));
}

OutputsTest(permissions_stay) {
    static const char *const names[] = {"w", "l", "j"};
    umask(022);
    for (int mode = 0; mode < 2; mode++) {
        cli_well(TRAIN " --steps 1 --mode %s --devices %d --save w --log-loss l --json j",
                 mode ? "ddp" : "single", mode + 1);
        for (int i = 0; i < 3; i++) {
            permissions_are(names[i], mode ? 0600 : 0644);
            cr_assert_eq(chmod(names[i], 0600), 0);
        }
    }
}

OutputsTest(a_read_only_file_is_refused_at_the_start) {
    static const char *const flags[] = {"--save", "--log-loss", "--json"};
    cr_assert_eq(close(open("kept", O_CREAT | O_WRONLY, 0444)), 0);
    for (int i = 0; i < 3; i++) /* the training would take longer than the test is allowed */
        cli_fails(1, "kept|read-only", TRAIN " --epochs 10000 %s kept", flags[i]);
    cli_fails(1, "kept|read-only", TRAIN " --epochs 10000 --mode ddp --devices 2 --save kept");
    cli_fails(1, "kept|read-only", "compare --data-dir d --epochs 10000 --trace kept");
    cli_fails(1, "kept|read-only", "compare --data-dir d --epochs 10000 --report kept");
    permissions_are("kept", 0444);
}

/* A full disk shows only at the end. The files on other disks must be whole. */
static void others_are_whole(const char *mode, int failing) {
    static const char *const flags[] = {"--save", "--log-loss", "--json", "--trace", "--report"};
    static const char *const names[] = {"w", "l", "j", "t", "r"};
    enum { OUTPUTS = 5 };
    char words[200] = "";
    struct cli c;
    int failed = 0, found = 0;
    for (int i = 0; i < OUTPUTS; i++) {
        size_t used = strlen(words);
        int fails = failing >> i & 1;
        snprintf(words + used, sizeof words - used, "%s %s ", flags[i],
                 fails ? "/dev/full" : names[i]);
        failed += fails;
    }
    cli_run(&c, TRAIN " --steps 3 --mode %s %s", mode, words);
    cr_assert_eq(c.status, 1, "%s: status %d: %s", words, c.status, c.err);
    const char *end = strchr(c.err, '\n');
    cr_assert(end && !end[1], "%s: not one line: %s", words, c.err);
    for (const char *at = c.err; (at = strstr(at, "cannot write: /dev/full: No space left")); at++)
        found++;
    cr_assert_eq(found, failed, "%s: each that failed is named: %s", words, c.err);
    cr_assert_eq(cli_files(), FILES + OUTPUTS - failed, "%s", words);
    if (!(failing & 1)) weights_are_whole("w");
    if (!(failing & 4)) json_free(json_of("j"));
    if (!(failing & 8)) json_free(json_of("t"));
    for (int i = 0; i < OUTPUTS; i++)
        unlink(names[i]);
    cli_free(&c);
}

OutputsTest(one_that_fails_does_not_cost_the_others) {
    for (int failing = 1; failing < 32; failing += failing < 16 ? 1 : 5)
        others_are_whole(failing % 3 == 0   ? "ddp --devices 2"
                         : failing % 3 == 1 ? "dp"
                                            : "single",
                         failing);
}

/* A dash is standard output to some programs and a file to others. */
OutputsTest(a_dash_is_refused) {
    static const char *const flags[] = {"--save", "--log-loss", "--json", "--trace"};
    for (int i = 0; i < 4; i++)
        cli_fails(2, "'-': give /dev/stdout| ./- ", TRAIN " --mode %s --epochs 10000 %s -",
                  i % 2 ? "ddp" : "single", flags[i]);
    cli_fails(2, "'-': give /dev/stdout", "compare --data-dir d --epochs 10000 --json -");
    cli_fails(2, "'-': give /dev/stdout", "profile --data-dir d --steps 100000 --report=-");
    cli_fails(2, "'-': give /dev/stdout", "doctor --json -");
    cli_well(TRAIN " --steps 1 --log-loss ./-");
    cr_assert_eq(cli_files(), FILES + 1);
    cli_says(0, "/dev/stdout", "train --help --details");
}

/* Standard output is a regular file here, as after `> file`: it is written to, not replaced. */
OutputsTest(standard_output) {
    static const char *const modes[] = {"single", "ddp --devices 2"};
    for (int i = 0; i < 2; i++) {
        cli_says(0, "step,epoch,loss\n0,0,|\n1,0,",
                 TRAIN " --steps 2 --mode %s --log-loss /dev/stdout", modes[i]);
        cr_assert_eq(cli_files(), FILES);
    }
}
