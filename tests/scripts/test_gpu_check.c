/* make gpu-check, as far as a machine without a GPU can try it: that its results are whole and
 * true whatever its parts do, with parts made up here; and that its own parts notice what they
 * are there for, on emulated devices and with commands that misbehave. The emulated CUDA build
 * runs the same on CUDA's side. */
#include "tests/cli/json.h"

#ifdef CUDA_EMULATION
#define DEVICE "cuda"
#else
#define DEVICE "cpu"
#endif

/* In a folder of its own: p/ for parts, b/ as build folder with the real programs, out/ for
 * results. EMULATION: there need be no GPU. */
static void make_place(void) {
    char path[2 * PATH_MAX], build[PATH_MAX];
    cli_folder_make();
    cr_assert_not_null(realpath(cli_program, path));
    strcpy(build, cli_program);
    *strrchr(build, '/') = 0;
    cr_assert(mkdir("p", 0777) == 0 && mkdir("b", 0777) == 0 &&
              symlink(cli_program, "b/duet") == 0);
    snprintf(path, sizeof path, "%s/bench", build);
    cr_assert_eq(symlink(path, "b/bench"), 0);
    cr_assert_not_null(getcwd(build, sizeof build));
    snprintf(path, sizeof path, "%s/b", build);
    setenv("B", path, 1);
    snprintf(path, sizeof path, "%s/out", build);
    setenv("OUT", path, 1);
    snprintf(path, sizeof path, "%s/p", build);
    setenv("GPU_CHECK_PARTS", path, 1);
    setenv("GPU_CHECK_DEVICE", DEVICE, 1);
    setenv("EMULATION", "1", 1);
    setenv("TMPDIR", build, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    snprintf(cli_program, sizeof cli_program, "%.*s/scripts/gpu_check.sh", PATH_MAX - 1,
             cli_root_path);
}

/* As cli_run, but what a part killed was handed to this test, and may still be on its way out. */
static void run_to_end(struct cli *c, const char *parts) {
    cli_start(c, "%s", parts);
    cli_wait_beside(c, 1);
    cr_assert(cli_nobody_left(CLI_LEFT_SECONDS), "left a process: %s", c->out);
}

static void put_script(const char *path, const char *text) {
    unlink(path);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f, "%s", path);
    fputs(text, f);
    fclose(f);
    chmod(path, 0755);
}

/* The one result file of this ending whose name ends in `tail`, "" for a day's first. */
static const char *result(const char *tail, const char *ending) {
    static char name[PATH_MAX];
    char expression[128];
    int found = 0;
    snprintf(expression, sizeof expression,
             "^gpu_check-[A-Za-z0-9-]+-20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]%s\\.%s$", tail, ending);
    DIR *folder = opendir("out");
    cr_assert_not_null(folder, "no results");
    for (struct dirent *entry; (entry = readdir(folder));)
        if (matches(entry->d_name, expression))
            found++, snprintf(name, sizeof name, "out/%.200s", entry->d_name);
    closedir(folder);
    cr_assert_eq(found, 1, "%d files like %s", found, expression);
    return name;
}

static struct json *part_at(struct json *root, int i, const char *name, const char *state) {
    char path[32];
    snprintf(path, sizeof path, "parts/%d", i);
    const struct json *part = json_at(root, path);
    cr_expect_str_eq(json_text(part, "part"), name);
    cr_expect_str_eq(json_text(part, "state"), state, "%s: %s", name, json_text(part, "state"));
    return (struct json *)part;
}

/* What a program may print, to be found again in the JSON. */
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

/* Not here alone is no success: nothing was shown to work. */
Test(gpu_check, nothing_looked_at_is_no_success, .timeout = 60, .init = make_place,
     .fini = cli_folder_remove) {
    struct cli c;
    put_script("p/torch.sh", "exit 77\n");
    cli_run(&c, "torch");
    cr_expect(c.status == 1 && strstr(c.out, "\n0 passed, 0 failed, 1 not here\n"), "%d: %s",
              c.status, c.out);
    cli_free(&c);
}

/* A part that hangs takes its children along, also those in process groups of their own, as
 * `timeout` and `set -m` make them; and what no time is left for is said. */
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

/* ---- the parts themselves ---- */

static struct json *run_real(const char *part, int status) {
    struct cli c;
    unsetenv("GPU_CHECK_PARTS");
    if (system("rm -rf out")) cr_assert_fail();
    run_to_end(&c, part);
    cr_assert_eq(c.status, status, "%d: %s%s", c.status, c.out, c.err);
    cli_free(&c);
    return json_of(result("", "json"));
}

Test(gpu_check, demo_and_steps_on_this_machine, .timeout = 240, .init = make_place,
     .fini = cli_folder_remove) {
    struct json *root = run_real("step demo", 0);
    const struct json *run = json_at(root, "parts/0/results/own/runs/0");
    cr_expect(json_double(run, "us_per_step") > 0 &&
              json_double(run, "loss_last") < json_double(run, "loss_first"));
    cr_expect(strstr(json_text(root, "parts/1/checks/1/words"), "identical"));
    json_free(root);
}

/* b/duet becomes a script around the real one, "$DUET". */
static void wrap(const char *text) {
    char script[PATH_MAX + 1024], real[PATH_MAX];
    cr_assert_not_null(realpath(
        strcmp(getenv("DUET") ? getenv("DUET") : "", "") ? getenv("DUET") : "b/duet", real));
    setenv("DUET", real, 1);
    snprintf(script, sizeof script, "#!/usr/bin/env bash\n%s\n", text);
    put_script("b/duet", script);
}

/* Of the script alone, which is the same beside every build. */
static void skip_where_short(void) {
    if (test_short()) cr_skip_test("short form: the script is tried beside the plain build");
}

/* As on a bare machine: a demo of other pictures, and its table says so. The part alone, since
 * the script would first ask for a GPU. */
Test(gpu_check, without_a_data_set_pictures_are_synthetic, .timeout = 240, .init = make_place,
     .fini = cli_folder_remove) {
    struct cli c;
    char command[2 * PATH_MAX];
    skip_where_short();
    wrap("[[ $* == *synthetic* ]] || { echo 'duet: no data set' >&2; exit 1; }\n"
         "exec \"$DUET\" \"$@\" --model mlp --mlp-hidden 8 --batch-size 16 --steps 2 --epochs 1");
    snprintf(command, sizeof command, "%s/scripts/gpu_check/demo.sh", cli_root_path);
    cr_assert_eq(chdir(cli_root_path), 0); /* where the script starts its parts */
    strcpy(cli_program, "/usr/bin/env");
    setenv("WORK", getenv("OUT"), 1);
    cr_assert_eq(mkdir(getenv("OUT"), 0777), 0);
    cli_run(&c, "bash %s", command);
    cr_expect_eq(c.status, 0, "%d: %s%s", c.status, c.out, c.err);
    cr_expect(
        matches(c.out, "^no data set on this machine") && matches(c.out, "^mlp on synthetic, ") &&
            matches(c.out,
                    "^ok +demo on 4 devices, synthetic pictures +DP and DDP identical to single"),
        "%s", c.out);
    cli_free(&c);
}

static int checks_off(const struct json *root, const char *words) {
    int off = 0;
    const struct json *checks = json_at(root, "parts/0/checks");
    for (const struct json *check = checks->child; check; check = check->next) {
        if (json_at(check, "ok")->integer) continue;
        off++;
        cr_expect(strstr(json_text(check, "words"), words), "%s: not '%s' but '%s'",
                  json_text(check, "check"), words, json_text(check, "words"));
    }
    return off;
}

Test(gpu_check, kills_end_well, .timeout = 240, .init = make_place, .fini = cli_folder_remove) {
    struct json *root = run_real("kill", 0);
    cr_expect_eq(json_at(root, "parts/0/checks")->count, 7);
    json_free(root);
}

/* What kill.sh is there to find: another status, a second line, a process that stays, memory
 * that stays. */
Test(gpu_check, kills_that_end_badly_are_noticed, .timeout = 300, .init = make_place,
     .fini = cli_folder_remove) {
    skip_where_short();
    static const char *const wrappers[][2] = {
        {"\"$DUET\" \"$@\"; exit 9", "status 9, not 137"},
        {"echo 'duet: more' >&2; exec \"$DUET\" \"$@\"", "not one line with"},
        {"sleep 300 & exec \"$DUET\" \"$@\"", "left processes "},
        {"echo epoch 2/; exit 137", "no process of rank "}};
    setenv("GPU_CHECK_KILLS", "rank", 1);
    for (int i = 0; i < 4; i++) {
        wrap(wrappers[i][0]);
        struct json *root = run_real("kill", 1);
        cr_expect_eq(checks_off(root, wrappers[i][1]), 2, "%s", wrappers[i][0]);
        json_free(root);
    }
}

/* Puts p/ before all other programs. */
static void tools_first(void) {
    char path[2 * PATH_MAX], here[PATH_MAX];
    cr_assert_not_null(getcwd(here, sizeof here));
    snprintf(path, sizeof path, "%s/p:%s", here, getenv("PATH"));
    setenv("PATH", path, 1);
}

/* compute-sanitizer with another verdict in each turn. One that looked at nothing, or hung, has
 * not found nothing. */
Test(gpu_check, sanitizers_words_are_read, .timeout = 120, .init = make_place,
     .fini = cli_folder_remove) {
    static const struct {
        const char *says, *words;
        int off; /* -1: some, by how many cores there are */
    } turns[] = {{"echo '========= ERROR SUMMARY: 0 errors'; [[ $2 == memcheck ]] || "
                  "echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)'",
                  "", 0},
                 {"echo '========= ERROR SUMMARY: 2 errors'; exit 86", "status 86", 7},
                 {":", "status 0, ", 7},
                 {"[[ $2 == memcheck ]] && echo '========= ERROR SUMMARY: 0 errors' || "
                  "echo '========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)'",
                  "1 hazard", 2},
                 {"[[ $* == *'mode dp'* ]] && sleep 100; echo '========= ERROR SUMMARY: 0 errors'",
                  "not done after ", -1}};
    tools_first();
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        char text[512];
        /* what ended is told, though time is short */
        if (i == 4) setenv("GPU_CHECK_SECONDS", "22", 1);
        snprintf(text, sizeof text, "#!/usr/bin/env bash\n%s\n", turns[i].says);
        put_script("p/compute-sanitizer", text);
        struct json *root = run_real("sanitizer", turns[i].off ? 1 : 0);
        cr_expect_eq(json_at(root, "parts/0/checks")->count, 7, "%s", turns[i].says);
        cr_expect_str_eq(json_text(root, "parts/0/state"), turns[i].off ? "failed" : "passed");
        int off = checks_off(root, turns[i].words);
        cr_expect(turns[i].off < 0 ? off > 0 : off == turns[i].off, "%s: %d", turns[i].says, off);
        json_free(root);
    }
}

/* A test that hangs is named before the part is cut off, and the others count. */
Test(gpu_check, a_test_that_hangs_is_named, .timeout = 60, .init = make_place,
     .fini = cli_folder_remove) {
    static const char good[] = "#!/usr/bin/env bash\necho '[====] Synthesis: Tested: 2 | Passing: "
                               "2 | Failing: 0 | Crashing: 0'\n";
    cr_assert_eq(mkdir("b/tests", 0777), 0);
    put_script("b/tests/test_good", good);
    put_script("b/tests/test_hangs", "#!/usr/bin/env bash\nsleep 100\n");
    setenv("TESTS", "test_good test_hangs", 1);
    setenv("GPU_CHECK_SECONDS", "14", 1);
    struct json *root = run_real("tests", 1);
    cr_expect_str_eq(json_text(root, "parts/0/state"), "failed");
    cr_expect_str_eq(json_text(root, "parts/0/note"), "2 passed, 1 failed");
    cr_expect(strstr(json_text(root, "parts/0/log_end"), "test_hangs"), "%s",
              json_text(root, "parts/0/log_end"));
    json_free(root);
}

Test(gpu_check, gpu_memory_that_stays_is_noticed, .timeout = 240, .init = make_place,
     .fini = cli_folder_remove) {
    skip_where_short();
    put_script("p/nvidia-smi",
               "#!/usr/bin/env bash\n[[ $1 == --query-gpu=memory.used ]] || exit 1\n"
               "echo >>${0%/*}/asked\nwc -l <${0%/*}/asked | awk '{ print $1 * 1000 }'\n");
    tools_first();
    setenv("GPU_CHECK_KILLS", "rank|DP", 1);
    struct json *root = run_real("kill", 1);
    cr_expect_eq(checks_off(root, "MiB in use, 1000 before"), 3);
    json_free(root);
}

/* As where a GPU is cut into parts: the driver then gives no number. */
Test(gpu_check, without_a_number_of_the_driver_memory_is_asked_elsewhere, .timeout = 60,
     .init = make_place, .fini = cli_folder_remove) {
    put_script("p/nvidia-smi", "#!/usr/bin/env bash\necho '[N/A]'\n");
    tools_first();
    setenv("GPU_CHECK_KILLS", "single", 1);
    struct json *root = run_real("kill", 0);
    cr_expect_eq(json_at(root, "parts/0/checks")->count, 1);
    json_free(root);
}
