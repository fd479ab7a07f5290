/* Tests --report and --pictures of real runs: files appear whole or not at all, and stopped runs
 * have pages too. */
#include <signal.h>

#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"
#include "tests/app/cli/nets.h"
#include "tests/app/report/pages.h"

#define TINY "--model lenet --data-dir d --batch-size 16 "

static void page_has(const char *path, const char *words) {
    char *text = cli_read(path, NULL);
    cr_expect(strstr(text, words), "%s: no '%s'", path, words);
    cr_expect(strstr(text, "</html>"), "%s is not whole", path);
    free(text);
}

static void is_svg(const char *path) {
    char *text = cli_read(path, NULL);
    cr_expect(!strncmp(text, "<svg xmlns=", 11) && strstr(text, "<desc>"), "%s: %.40s", path, text);
    cr_expect_null(strstr(text, "class="), "%s: a colour that needs the page's style", path);
    int quoted = 0, open = 0; /* no element begins inside another's tag, and each ends */
    for (const char *at = text; *at; at++) {
        if (*at == '"' && open) quoted = !quoted;
        if (*at == '<') cr_assert(!open, "%s: %.60s", path, at);
        if (*at == '<' || (*at == '>' && !quoted)) open = *at == '<';
    }
    cr_expect(!open && !quoted && strstr(text, "</svg>"), "%s is not whole", path);
    free(text);
}

CliTest(cli_report, pictures, 120) {
    static const char *const names[] = {"timeline", "memory",     "phases",     "loss",
                                        "accuracy", "collective", "traffic-dp", "traffic-ddp"};
    put_data(32, 16);
    cli_well("compare " TINY "--devices 2 --epochs 2 --quiet --pictures p");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        snprintf(path, sizeof path, "p/%s.svg", names[i]);
        is_svg(path);
    }
    cli_well("profile " TINY "--devices 2 --steps 2 --pictures p"); /* the folder already exists */
    is_svg("p/traffic-dp-loss-in-forward.svg");
}

CliTest(cli_report, what_cannot_be_written, 120) {
    put_data(32, 16);
    cr_assert_eq(close(open("file", O_CREAT | O_WRONLY, 0666)), 0);
    int files = cli_files();
    /* reported before anything is trained */
    cli_fails(1, "nowhere/r|No such file", "train " TINY "--epochs 100000 --report nowhere/r");
    cli_fails(1, "--pictures: file: is not a", "demo " TINY "--epochs 100000 --pictures file");
    cli_fails(1, "--pictures: no/p: the folder cannot be made|No such file",
              "train " TINY "--epochs 100000 --pictures no/p");
    cli_fails(2, "--json and --report|same file", "train " TINY "--json r --report ./r");
    put_norm_model("net.duet");
    cli_fails(2, "--model and --json|same file",
              "train " TINY "--model net.duet --json ./net.duet");
    files += 2;
    /* a failure after the folder was made removes it */
    cli_fails(1, "out of memory", "train " TINY "--device-memory 2M --batch-size 32 --pictures p");
    cr_expect_eq(cli_files(), files);
}

/* Without UTF-8, in 20 columns: the page is UTF-8 all the same. */
CliTest(cli_report, any_locale, 120) {
    put_data(32, 16);
    cr_assert_eq(rename("d", "\xff<b>d&"), 0);
    setenv("LC_ALL", "C", 1), setenv("COLUMNS", "20", 1);
    cli_well("train --model mlp --data-dir \xff<b>d& --batch-size 16 --steps 2 --quiet --report r");
    page_has("r", "\xef\xbf\xbd&#60;b&#62;d&#38;");
    size_t bytes;
    char *text = cli_read("r", &bytes);
    for (size_t at = 0, n; at < bytes; at += n) {
        n = (size_t)utf8_length((unsigned char *)text + at, bytes - at);
        cr_assert(n, "byte %zu is not UTF-8", at);
    }
    free(text);
}

/* The other files beside the page have the same runs: all end with `last`, or the one before it
 * where that made no step, and none was judged. */
static void has_runs_to(const char *last) {
    struct json *j = json_of("j"), *t = json_of("t");
    const struct json *runs = json_at(j, "runs");
    int count = runs->count, in_last = 0;
    cr_expect(count == 1 || count == 2, "%d runs", count);
    for (const struct json *run = runs->child; run; run = run->next) {
        const struct json *verdict = json_find(run, "verdict");
        cr_expect_gt(json_int(run, "steps"), 0);
        cr_expect(!verdict || verdict->kind == JSON_NULL, "judged");
        cr_expect(json_find(json_at(t, "otherData"), json_find(run, "title")->string));
        in_last |= !strcmp(json_find(run, "name")->string, last);
    }
    cr_expect_eq(in_last, count == 2, "%s", last);
    cr_expect(!json_find(json_at(t, "otherData"), "DDP"));
    json_free(j), json_free(t);
}

/* Ctrl-C as soon as the second run has a process: DP is done, and no table was printed yet. */
static void stop_profile(struct cli *c) {
    cr_assert_eq(system("rm r j t"), 0);
    cli_start(c, "profile " TINY "--devices 2 --steps 400 --report r --json j --trace t");
    for (pid_t first = cli_find_rank(c, 0); cli_find_rank(c, 0) == first;)
        cli_pause();
    kill(c->pid, SIGINT);
    cli_wait(c);
    cr_expect_eq(c->status, 128 + SIGINT, "%s", c->err);
    page_has("r", "Stopped early: ");
    page_has("r", "DDP is missing: it was not run");
    page_has("r", "<th scope=\"col\">DP</th>");
    cli_free(c);
}

/* Ctrl-C in the middle of a run, of a comparison and of a profile: the page and the other files are
 * of what was measured. */
CliTest(cli_report, stopped_half_way, 120) {
    struct cli c;
    put_data(32, 16);
    cli_start_on_terminal(&c, "train " TINY "--mode ddp --devices 2 --epochs 100000 --report r");
    cr_assert(cli_shows(&c, "epoch 2/"), "%s", c.out);
    kill(c.pid, SIGINT);
    cli_wait(&c);
    cr_expect_eq(c.status, 128 + SIGINT, "%s", c.err);
    page_has("r", "Stopped early: ended by signal 2 (Interrupt) after ");
    page_has("r", "last loss");
    cli_free(&c);
    cli_start_on_terminal(&c,
                          "compare " TINY "--devices 2 --epochs 150 --report r --json j --trace t");
    cr_assert(cli_shows(&c, "DP     epoch 2/"), "%s", c.out);
    kill(c.pid, SIGTERM);
    cli_wait(&c);
    cr_expect_eq(c.status, 128 + SIGTERM, "%s", c.err);
    page_has("r", "Stopped early: ");
    page_has("r", "DDP is missing: it did not finish");
    page_has("r", "<th scope=\"col\">DP</th>"); /* the page shows the run so far */
    cli_free(&c);
    has_runs_to("dp");
    struct json *j = json_of("j");
    cr_expect_gt(json_int(j, "single/steps"), json_int(j, "dp/steps"));
    json_free(j);
    stop_profile(&c);
    has_runs_to("dp_loss_in_forward");
}
