/* make gpu-check on a machine without a GPU: whatever the parts do, its results are whole and true.
 * The parts are made up here; test_gpu_check_parts tries the real ones. */
#include "tests/scripts/gpu_check.h"

static struct json *part_at(struct json *root, int i, const char *name, const char *state) {
    char path[32];
    snprintf(path, sizeof path, "parts/%d", i);
    const struct json *part = json_at(root, path);
    cr_expect_str_eq(json_text(part, "part"), name);
    cr_expect_str_eq(json_text(part, "state"), state, "%s: %s", name, json_text(part, "state"));
    return (struct json *)part;
}

/* Text that a program may print; it must come back from the JSON. */
#define NASTY "\"quoted\" back\\slash \t tab \001 \033[31m 12 \xc2\xb5s {\"a\": [1,"

Test(gpu_check, whatever_parts_do_the_results_are_whole, .timeout = 60, .init = make_place,
     .fini = cli_folder_remove) {
    struct cli c;
    put_script("p/doctor.sh",
               ". scripts/gpu_check/common.sh\n"
               "check ok 'a name' 'its \"words\"'\necho '{\"rows\": [1, 2]}' >$WORK/doctor.json\n"
               "echo 'target: how fast | at most 2 s | 1.5 s | reached'\nconclude\n");
    put_script("p/demo.sh", "printf '%s\\n' '" NASTY "' '' 'last words'\nexit 3\n");
    put_script("p/torch.sh", ". scripts/gpu_check/common.sh\nnot_here 'no \"torch\" \\ here'\n");
    put_script("p/step.sh",
               "echo 'note: first'\necho 'note: last'\n"
               "echo 'target: how much | at least 10 times | 9.99 times | not reached'\n");
    put_script("p/kill.sh", ". scripts/gpu_check/common.sh\ncheck ok a b\ncheck off c d\ntimeout "
                            "100 sleep 100 &\nconclude\n");
    put_script("p/tests.sh", "kill -KILL $$\n");
    run_to_end(&c, "doctor demo torch step kill tests");
    cr_expect_eq(c.status, 1, "%d: %s", c.status, c.err);
    cr_expect(!*c.err, "%s", c.err);
    const char *last = strstr(c.out, "2 passed, 3 failed, 1 not here\n");
    cr_assert(last && !last[31], "%s", c.out);

    struct json *root = json_of(result("", "json"));
    cr_expect(json_at(root, "emulated")->integer == 1);
    cr_expect(json_int(root, "passed") == 2 && json_int(root, "failed") == 3 &&
              json_int(root, "not_here") == 1);
    cr_assert_eq(json_at(root, "parts")->count, 6);
    struct json *part = part_at(root, 0, "doctor", "passed");
    cr_expect_eq(json_int(part, "results/rows/1"), 2);
    cr_expect_str_eq(json_text(part, "checks/0/words"), "its \"words\"");
    cr_expect(json_at(part, "checks/0/ok")->integer == 1 &&
              json_at(part, "log_end")->kind == JSON_NULL);
    part = part_at(root, 1, "demo", "failed");
    cr_expect_eq(json_int(part, "status"), 3);
    const char *text = json_text(part, "log_end");
    cr_expect(strstr(text, "\"quoted\" back\\slash \t tab ") &&
                  strstr(text, "[31m 12 ??s {\"a\": [1,\n\nlast words"),
              "%s", text);
    cr_expect(strstr(json_text(part, "note"), "last words"));
    part = part_at(root, 2, "torch", "not here");
    cr_expect_str_eq(json_text(part, "note"), "no \"torch\" \\ here");
    part = part_at(root, 3, "step", "passed");
    cr_expect_str_eq(json_text(part, "note"), "last");
    cr_expect(json_at(part, "results")->kind == JSON_NULL && json_at(part, "checks")->count == 0);
    part = part_at(root, 4, "kill", "failed");
    cr_expect(json_at(part, "checks")->count == 2 && json_at(part, "checks/1/ok")->integer == 0);
    cr_expect_str_eq(json_text(part, "note"), "1 ok, 1 off; left processes, which were ended");
    part_at(root, 5, "tests", "cut off");
    cr_assert_eq(json_at(root, "targets")->count, 2);
    cr_expect(json_at(root, "targets/0/reached")->integer == 1 &&
              json_at(root, "targets/1/reached")->integer == 0);
    cr_expect_str_eq(json_text(root, "targets/1/wanted"), "at least 10 times");
    json_free(root);

    char *table = cli_read(result("", "txt"), NULL);
    cr_expect(matches(table, "^EMULATED: ") && matches(table, "^ +demo +failed ") &&
                  matches(table, "^ +tests +cut off ") &&
                  matches(table, "^ +how much +at least 10 times +9\\.99 times +not reached$") &&
                  matches(table, "^last words$") &&
                  matches(table, "^2 passed, 3 failed, 1 not here$"),
              "%s", table);
    free(table);
    cli_free(&c);
    cr_expect_eq(cli_files(), 4, "golden, p, b and out: the rest is removed");
}

Test(gpu_check, all_passed_is_status_0_and_nothing_is_overwritten, .timeout = 60,
     .init = make_place, .fini = cli_folder_remove) {
    for (int run = 0; run < 2; run++) {
        struct cli c;
        put_script("p/doctor.sh", "exit 0\n");
        cli_run(&c, "doctor");
        cr_expect(c.status == 0 && strstr(c.out, "\n1 passed, 0 failed, 0 not here\n"), "%d: %s%s",
                  c.status, c.out, c.err);
        cli_free(&c);
        json_free(json_of(result(run ? "-2" : "", "json")));
    }
    result("", "json"); /* the first is still there */
}

/* Only parts that are not here: that is no success, since nothing was shown to work. */
Test(gpu_check, nothing_looked_at_is_no_success, .timeout = 60, .init = make_place,
     .fini = cli_folder_remove) {
    struct cli c;
    put_script("p/torch.sh", "exit 77\n");
    cli_run(&c, "torch");
    cr_expect(c.status == 1 && strstr(c.out, "\n0 passed, 0 failed, 1 not here\n"), "%d: %s",
              c.status, c.out);
    cli_free(&c);
}

/* A part that hangs is ended together with its children, also those in process groups of their
 * own, as `timeout` and `set -m` make them. A part for which no time is left is reported. */
Test(gpu_check, a_part_that_hangs_is_cut_off, .timeout = 60, .init = make_place,
     .fini = cli_folder_remove) {
    struct cli c;
    setenv("GPU_CHECK_SECONDS", "7", 1);
    put_script("p/doctor.sh", "echo begun\nsleep 100 &\ntimeout 100 sleep 100 &\nset -m\n(sleep "
                              "100; sleep 100) &\nsleep 100\n");
    put_script("p/demo.sh", "touch $OUT/ran\n");
    run_to_end(&c, "doctor demo");
    cr_expect_eq(c.status, 1);
    struct json *root = json_of(result("", "json"));
    struct json *part = part_at(root, 0, "doctor", "cut off");
    cr_expect(strstr(json_text(part, "note"), "after ") &&
              strstr(json_text(part, "log_end"), "begun"));
    part_at(root, 1, "demo", "cut off");
    cr_expect_neq(access("out/ran", F_OK), 0, "there was no time for it");
    json_free(root);
    cli_free(&c);
}

static void one_line_and_nothing(const char *words, const char *arguments) {
    struct cli c;
    cli_run(&c, "%s", arguments);
    const char *end = strchr(c.err, '\n');
    cr_expect_eq(c.status, 2, "'%s': %d", arguments, c.status);
    cr_expect(!strncmp(c.err, "gpu-check: ", 11) && end && !end[1] && strstr(c.err, words) &&
                  !*c.out,
              "'%s': %s%s", arguments, c.err, c.out);
    cr_expect_eq(cli_files(), 3, "left a file");
    cli_free(&c);
}

Test(gpu_check, refused_before_anything_is_done, .timeout = 60, .init = make_place,
     .fini = cli_folder_remove) {
    one_line_and_nothing("unknown part: doctr", "doctr");
    one_line_and_nothing("unknown part: doctor.", "kill doctor.");
    unsetenv("EMULATION");
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    one_line_and_nothing("no GPU here: CUDA_VISIBLE_DEVICES", "");
    setenv("CUDA_VISIBLE_DEVICES", "-1", 1);
    one_line_and_nothing("no GPU here: CUDA_VISIBLE_DEVICES", "doctor");
}

/* Emulated results never stand among those of hardware. */
Test(gpu_check, emulated_results_stay_in_the_build_folder, .timeout = 60, .init = make_place,
     .fini = cli_folder_remove) {
    struct cli c;
    unsetenv("OUT");
    put_script("p/doctor.sh", "exit 0\n");
    cli_run(&c, "doctor");
    cr_expect(c.status == 0 && strstr(c.out, "/b/gpu_check/gpu_check-"), "%s", c.out);
    cli_free(&c);
    setenv("OUT", "bench/../bench/results", 1);
    cli_run(&c, "doctor");
    cr_expect(c.status == 0 && strstr(c.out, "/b/gpu_check/gpu_check-"), "%s", c.out);
    cli_free(&c);
}

/* The limits of the parts add up: with all time used by each, the last one still has its own. */
Test(gpu_check, limits_add_up, .timeout = 60, .init = make_place, .fini = cli_folder_remove) {
    static const char *const parts[] = {"build",     "doctor", "lenet", "demo",  "step",
                                        "allreduce", "torch",  "kill",  "tests", "sanitizer"};
    char path[64];
    int sum = 0, limit;
    struct cli c;
    setenv("GPU_CHECK_SLOWER", "1", 1);
    for (int i = 0; i < 10; i++) {
        snprintf(path, sizeof path, "p/%s.sh", parts[i]);
        put_script(path, "echo limit=$LIMIT\n");
    }
    cli_run(&c, "build doctor lenet demo step allreduce torch kill tests sanitizer");
    for (const char *at = c.out;
         (at = strstr(at, "at most ")) && sscanf(at, "at most %d s", &limit); at++)
        sum += limit;
    cr_expect(sum > 600 && sum <= 1080, "%d s: %s", sum, c.out);
    cr_expect(strstr(c.out, "10 passed, 0 failed, 0 not here"), "%s", c.out);
    cli_free(&c);
}
