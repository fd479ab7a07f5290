/* Tests duet doctor as a user sees it: the table, the JSON, the flags, the exit status. */
#include "tests/app/cli/json.h"
#include "tests/app/cli/run.h"

static const struct json *finding(const struct json *root, const char *check) {
    for (const struct json *f = json_at(root, "findings")->child; f; f = f->next)
        if (!strcmp(json_text(f, "check"), check)) return f;
    cr_assert_fail("no finding about %s in the file", check);
    return NULL;
}

/* Without --details all passed checks are counted by their subject, in few lines. */
static void check_brief(const char *out) {
    enum { STATE = 38 }; /* the column of "ok" */
    int lines = 0, well = 0, ok = -1, count;
    for (const char *line = out, *end; (end = strchr(line, '\n')); line = end + 1, lines++) {
        char last[16] = "";
        sscanf(line, "%d ok, ", &ok);
        if (end - line <= STATE || strncmp(line + STATE, "ok ", 3)) continue;
        int counts = sscanf(line + STATE, "ok %d %8[checks]\n", &count, last) == 2;
        well += counts && !strncmp(last, "check", 5) ? count : 1;
    }
    cr_expect(ok > 55 && well == ok && lines < 25, "%d of %d in %d lines: %s", well, ok, lines,
              out);
    cr_expect(matches(out, "^cpu +ok +[0-9]+ checks$"), "%s", out);
}

/* Every check has a row, nothing is off, and the JSON file says what the table says. */
CliTest(doctor_cli, emulated_devices_pass, 280) {
    static const char *const checks[] = {"cores",
                                         "memory",
                                         "open files",
                                         "vector kernels",
                                         "build",
                                         "cpu(1) -> cpu(0)",
                                         "cpu: to n16",
                                         "cpu: conv2d forward",
                                         "cpu: hash",
                                         "cpu: allreduce naive, 2 ranks",
                                         "cpu: allreduce fused, 4 ranks",
                                         "cpu: step of lenet",
                                         "cpu: convnet in two segments"};
    struct cli c;
    cli_run(&c, "doctor --device cpu --quick --details --seed 77 --timeout 110 --json found.json");
    cr_assert(c.status == 0 && !*c.err, "status %d: %s%s", c.status, c.out, c.err);
    cr_expect(plain_lines(c.out) &&
                  matches(c.out, "^[0-9]+ ok, 0 off, [0-9]+ not here; seed 77; [0-9.]+ s$"),
              "%s", c.out);
    struct json *root = json_of("found.json");
    cr_expect(json_int(root, "seed") == 77 && json_int(root, "off") == 0 &&
              json_double(root, "seconds") > 0);
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        const struct json *f = finding(root, checks[i]);
        cr_expect_str_eq(json_text(f, "state"), "ok", "%s", checks[i]);
        cr_expect(strstr(c.out, checks[i]) && *json_text(f, "measured"), "%s is not in the table",
                  checks[i]);
    }
    int rows = 0;
    for (const struct json *f = json_at(root, "findings")->child; f; f = f->next, rows++)
        cr_expect(*json_text(f, "measured") && json_at(f, "bound"), "%s", json_text(f, "check"));
    cr_expect_gt(rows, 55);
    cli_free(&c);
    if (test_short()) return json_free(root);
    cli_run(&c, "doctor --device=cpu --quick --seed=77 --timeout 110 --json again.json");
    check_brief(c.out);
    cli_free(&c);
    struct json *again = json_of("again.json");
    for (size_t i = 0; i < 2; i++) { /* the seed decides the data, and so the errors of products */
        const char *check = i ? "cpu: step of convnet" : "cpu: conv2d forward";
        cr_expect_str_eq(json_text(finding(root, check), "measured"),
                         json_text(finding(again, check), "measured"));
    }
    json_free(root), json_free(again);
}

/* Without a GPU --device cuda fails. CUDA reads CUDA_VISIBLE_DEVICES at its first call. Without
 * --seed each run takes a fresh one. */
CliTest(doctor_cli, no_gpu, 120) {
    int64_t seed[2];
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    for (int i = 0; i < 2; i++) {
        struct cli c;
        cli_run(&c, "doctor --device cuda --quick --json found.json");
        cr_expect_eq(c.status, 3, "%s", c.out);
        cr_expect(matches(c.out, "^(driver|GPUs) +off +"), "%s", c.out);
        cr_expect(matches(c.err, "^duet: doctor: 1 of [0-9]+ checks failed: the first is ") &&
                      strchr(c.err, '\n')[1] == 0,
                  "%s", c.err);
        struct json *root = json_of("found.json");
        cr_expect(json_int(root, "off") == 1, "the file must be written although the check failed");
        seed[i] = json_int(root, "seed");
        json_free(root);
        cli_free(&c);
    }
    cr_expect_neq(seed[0], seed[1]);
}

CliTest(doctor_cli, wrong_flags, 60) {
    static const char *const table[][2] = {{"--device tpu", "--device: 'tpu'|auto, cpu or cuda"},
                                           {"--device", "--device: no value"},
                                           {"--timeout 0", "--timeout"},
                                           {"--seed x", "--seed"},
                                           {"--json nowhere/x.json", "nowhere/x.json"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        cli_fails(strstr(table[i][0], "nowhere") ? 1 : 2, table[i][1], "doctor %s", table[i][0]);
    cli_says(0, "--device auto|--quick|--tf32|--timeout|--seed|--json", "doctor --help");
}

/* A signal to the doctor at any time: its check and the check's ranks end too. */
CliTest(doctor_cli, a_signal_leaves_no_process, 120) {
    struct cli c;
    for (int i = 0; i < 4; i++) {
        int files = cli_files();
        cli_start(&c, "doctor --device cpu --quick --json found.json");
        usleep(300000u * (unsigned)i);
        kill(c.pid, i % 2 ? SIGTERM : SIGINT);
        cli_wait_beside(&c, 1);
        cr_expect(c.status == 128 + (i % 2 ? SIGTERM : SIGINT) || c.status == 0, "status %d: %s",
                  c.status, c.err);
        cr_expect(cli_nobody_left(CLI_LEFT_SECONDS), "a process is left");
        if (c.status) cr_expect_eq(cli_files(), files, "a file is left");
        cli_free(&c);
    }
}
