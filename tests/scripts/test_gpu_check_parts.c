/* The parts of make gpu-check find what they are there for. They run on emulated devices, with
 * commands and tools that misbehave; the emulated CUDA build runs them on CUDA's side. */
#include "tests/scripts/gpu_check.h"

/* Runs the real part and returns the JSON of its results. */
static struct json *run_real(const char *part, int status) {
    struct cli c;
    unsetenv("GPU_CHECK_PARTS");
    if (system("rm -rf out")) cr_assert_fail();
    run_to_end(&c, part);
    cr_assert_eq(c.status, status, "%d: %s%s", c.status, c.out, c.err);
    cli_free(&c);
    return json_of(result("", "json"));
}

/* Skips a test of the scripts alone, which are the same beside every build. */
static void skip_where_short(void) {
    if (test_short()) cr_skip_test("short form: the script is tried beside the plain build");
}

/* What step_perf has measured when it is cut off is not lost: figures with a target, and its JSON.
 */
Test(gpu_check, a_step_that_is_cut_off_keeps_its_figures, .timeout = 150, .init = make_place,
     .fini = cli_folder_remove) {
    skip_where_short();
    unlink("b/bench");
    cr_assert_eq(mkdir("b/bench", 0777), 0);
    put_script("b/bench/make_data", "#!/usr/bin/env bash\nmkdir -p $1\n");
    put_script("b/bench/step_perf",
               "#!/usr/bin/env bash\n"
               "while (($#)); do [[ $1 == --json ]] && echo '{\"runs\": [7]}' >$2; shift; done\n"
               "echo 'target: an epoch | at most 0.05 s | 0.04 s | reached'\n"
               "cp $OUT/*.json $OUT/../before 2>/dev/null\nsleep 1\n"
               "cp $OUT/*.json $OUT/../during\nsleep 100\n");
    setenv("GPU_CHECK_SECONDS", "30", 1);
    put_script("b/bench/gpu_facts", "#!/usr/bin/env bash\n[[ $1 == --hold ]] && exec sleep 100\n"
                                    "echo 'gpu 0: A GPU | sm_90'\n");
    struct json *root = run_real("step", 1), *during = json_of("during");
    cr_expect_eq(json_int(root, "parts/0/results/own/runs/0"), 7);
    cr_expect_str_eq(json_text(root, "parts/0/state"), "cut off");
    cr_expect_eq(json_at(root, "targets")->count, 1);
    cr_expect_str_eq(json_text(during, "targets/0/measured"), "0.04 s");
    json_free(root), json_free(during);
}

Test(gpu_check, demo_and_steps_on_this_machine, .timeout = 400, .init = make_place,
     .fini = cli_folder_remove) {
    struct json *root = run_real("step demo", 0);
    const struct json *run = json_at(root, "parts/0/results/own/runs/0");
    cr_expect(json_double(run, "us_per_step") > 0 &&
              json_double(run, "loss_last") < json_double(run, "loss_first"));
    cr_expect(strstr(json_text(root, "parts/1/checks/0/words"), "identical"));
    json_free(root);
}

/* Replaces b/duet by a script, which may run the real program as "$DUET". */
static void wrap(const char *text) {
    char script[PATH_MAX + 1024], real[PATH_MAX];
    cr_assert_not_null(realpath(
        strcmp(getenv("DUET") ? getenv("DUET") : "", "") ? getenv("DUET") : "b/duet", real));
    setenv("DUET", real, 1);
    snprintf(script, sizeof script, "#!/usr/bin/env bash\n%s\n", text);
    put_script("b/duet", script);
}

/* On a machine without a data set the demo trains on synthetic pictures and says so. The part runs
 * alone, since the script would first look for a GPU. */
Test(gpu_check, without_a_data_set_pictures_are_synthetic, .timeout = 240, .init = make_place,
     .fini = cli_folder_remove) {
    struct cli c;
    char command[2 * PATH_MAX];
    skip_where_short();
    wrap("[[ $* == *synthetic* ]] || { echo 'duet: no data set' >&2; exit 1; }\n"
         "exec \"$DUET\" \"$@\" --model mlp --mlp-hidden 8 --batch-size 16 --steps 2 --epochs 1");
    snprintf(command, sizeof command, "%s/scripts/gpu_check/demo.sh", cli_root_path);
    cr_assert_eq(chdir(cli_root_path), 0); /* where the script runs its parts */
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

/* The number of checks that are off; each must contain `words`. */
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

/* Also on a machine of which each run has to say something first. */
Test(gpu_check, kills_end_well, .timeout = 240, .init = make_place, .fini = cli_folder_remove) {
    wrap("echo 'duet: warning: P2P moves no bytes' >&2; exec \"$DUET\" \"$@\"");
    struct json *root = run_real("kill", 0);
    cr_expect_eq(json_at(root, "parts/0/checks")->count, 7);
    json_free(root);
}

/* kill.sh finds a wrong status, a second line, a process that stays and a rank that is not
 * there. */
Test(gpu_check, kills_that_end_badly_are_noticed, .timeout = 300, .init = make_place,
     .fini = cli_folder_remove) {
    skip_where_short();
    static const char *const wrappers[][2] = {
        {"\"$DUET\" \"$@\"; exit 9", "status 9, not 137"},
        {"echo 'duet: more' >&2; exec \"$DUET\" \"$@\"", "not one line with"},
        {"sleep 300 & exec \"$DUET\" \"$@\"", "left processes "},
        {"echo epoch 2/ >&2; exit 137", "no process of rank "}};
    setenv("GPU_CHECK_KILLS", "rank", 1);
    for (int i = 0; i < 4; i++) {
        wrap(wrappers[i][0]);
        struct json *root = run_real("kill", 1);
        cr_expect_eq(checks_off(root, wrappers[i][1]), 2, "%s", wrappers[i][0]);
        json_free(root);
    }
}

/* Puts the programs in p/ before all others. */
static void tools_first(void) {
    char path[2 * PATH_MAX], here[PATH_MAX];
    cr_assert_not_null(getcwd(here, sizeof here));
    snprintf(path, sizeof path, "%s/p:%s", here, getenv("PATH"));
    setenv("PATH", path, 1);
}

/* compute-sanitizer with another verdict in each turn. One that checked nothing, or hung, does
 * not count as one that found nothing. */
Test(gpu_check, sanitizers_words_are_read, .timeout = 120, .init = make_place,
     .fini = cli_folder_remove) {
    static const struct {
        const char *says, *words;
        int off; /* checks that are off; -1: some, depending on the number of cores */
    } turns[] = {{"echo '========= ERROR SUMMARY: 0 errors'; [[ $2 == memcheck ]] || "
                  "echo '========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)'",
                  "", 0},
                 {"echo '========= ERROR SUMMARY: 2 errors'; exit 86", "status 86", 9},
                 {":", "status 0, ", 9},
                 {"[[ $2 == memcheck ]] && echo '========= ERROR SUMMARY: 0 errors' || "
                  "echo '========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)'",
                  "1 hazard", 2},
                 {"[[ $* == *'mode dp'* ]] && sleep 100; echo '========= ERROR SUMMARY: 0 errors'",
                  "not done after ", -1}};
    skip_where_short();
    tools_first();
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++) {
        char text[512];
        /* too short for all forms: those that ended must be reported */
        if (i == 4) setenv("GPU_CHECK_SECONDS", "22", 1);
        snprintf(text, sizeof text, "#!/usr/bin/env bash\n%s\n", turns[i].says);
        put_script("p/compute-sanitizer", text);
        struct json *root = run_real("sanitizer", turns[i].off ? 1 : 0);
        cr_expect_eq(json_at(root, "parts/0/checks")->count, 9, "%s", turns[i].says);
        cr_expect_str_eq(json_text(root, "parts/0/state"), turns[i].off ? "failed" : "passed");
        int off = checks_off(root, turns[i].words);
        cr_expect(turns[i].off < 0 ? off > 0 : off == turns[i].off, "%s: %d", turns[i].says, off);
        json_free(root);
    }
}

#ifdef CUDA_EMULATION
/* A compute-sanitizer that looks only at the program which it starts and what that executes, not at
 * what it forks, that counts each call of CUDA that fails, and under which a program takes SLOWER
 * times as long. Where it has seen no program it has nothing to say. API=explicit counts what the
 * part asks not to count; FORKS=1 lets a test's runner fork. */
static const char strict[] =
    "#!/usr/bin/env bash\n"
    "api=explicit words=()\n"
    "while [[ $1 == --* ]]; do [[ $1 == --report-api-errors ]] && api=$2; shift 2; done\n"
    "for word; do [[ ${FORKS-} && $word == --here ]] || words+=(\"$word\"); done\n"
    "export EMULATED_SANITIZER=$TMPDIR/seen-$$\n"
    "from=$(date +%s%N)\n"
    "\"${words[@]}\" || exit\n"
    "sleep $(awk \"BEGIN { print ($SLOWER - 1) * ($(date +%s%N) - $from) / 1e9 }\")\n"
    "grep -qs program $EMULATED_SANITIZER || exit 0\n"
    "errors=$(grep -c error $EMULATED_SANITIZER)\n"
    "[[ ${API-$api} == no ]] && errors=0\n"
    "echo \"========= ERROR SUMMARY: $errors errors\"\n"
    "((errors == 0)) || exit 86\n";

static void begin_strict(const char *slower, const char *forms) {
    char tests[2 * PATH_MAX];
#ifdef HARNESS_PLAIN
    static const char folder[] = "tests";
#else
    static const char folder[] = "plain/tests"; /* without Criterion, as make gpu-check builds it */
#endif
    make_place();
    snprintf(tests, sizeof tests, "%s/" BUILD_DIR "/%s", cli_root_path, folder);
    cr_assert_eq(symlink(tests, "b/tests"), 0);
    tools_first();
    put_script("p/compute-sanitizer", strict);
    setenv("SLOWER", slower, 1);
    setenv("GPU_CHECK_FORMS", forms, 1);
}

/* On a machine that starts and changes turns as slowly as real ones, all that is asked for ends
 * within the limit of a real machine, also where the tool is slow. */
Test(gpu_check, the_sanitizers_part_ends_in_time, .timeout = 240, .fini = cli_folder_remove) {
    char machine[24];
    begin_strict("3", test_short() ? "recorded|breaks|DDP" : "");
    put_script("p/nproc", "#!/usr/bin/env bash\necho 16\n"); /* as beside a GPU */
    snprintf(machine, sizeof machine, "sanitizer %d", (int)getpid());
    setenv("EMULATED_MACHINE", machine, 1);
    setenv("EMULATED_START_MS", test_short() ? "1000" : "3000", 1);
    setenv("EMULATED_SWITCH_US", test_short() ? "200" : "2000", 1);
    setenv("GPU_CHECK_SLOWER", "1", 1); /* the real limit */
    struct json *root = run_real("sanitizer", 0);
    cr_expect_eq(json_at(root, "parts/0/checks")->count, test_short() ? 4 : 9);
    cr_expect_lt(json_int(root, "parts/0/seconds"), 100);
    json_free(root);
}

/* It would count a call that fails because the test wants it to, and would see nothing of a test
 * that a runner forks: the part asks for neither. */
Test(gpu_check, the_sanitizer_looks_at_what_it_runs, .timeout = 120, .fini = cli_folder_remove) {
    begin_strict("1", "breaks");
    json_free(run_real("sanitizer", 0));
    setenv("API", "explicit", 1);
    struct json *root = run_real("sanitizer", 1);
    cr_expect_eq(checks_off(root, "status 86"), 1);
    json_free(root);
    unsetenv("API");
    setenv("FORKS", "1", 1);
    root = run_real("sanitizer", 1);
    cr_expect_eq(checks_off(root, "status 0, "), 1);
    json_free(root);
}
#endif

/* A test that hangs is named before the part is cut off, and the other tests count. */
Test(gpu_check, a_test_that_hangs_is_named, .timeout = 60, .init = make_place,
     .fini = cli_folder_remove) {
    static const char good[] = "#!/usr/bin/env bash\necho '[====] Synthesis: Tested: 2 | Passing: "
                               "2 | Failing: 0 | Crashing: 0'\n";
    skip_where_short();
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

/* Where a GPU is partitioned the driver gives no number for its memory. */
Test(gpu_check, without_a_number_of_the_driver_memory_is_asked_elsewhere, .timeout = 60,
     .init = make_place, .fini = cli_folder_remove) {
    skip_where_short();
    put_script("p/nvidia-smi", "#!/usr/bin/env bash\necho '[N/A]'\n");
    tools_first();
    setenv("GPU_CHECK_KILLS", "single", 1);
    struct json *root = run_real("kill", 0);
    cr_expect_eq(json_at(root, "parts/0/checks")->count, 1);
    json_free(root);
}
