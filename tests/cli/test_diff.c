/* duet diff: what it says of two real runs is what their files hold; files of different subcommands
 * are compared as far as they have the same runs; wrong files are one line. */
#include "tests/cli/data.h"
#include "tests/cli/json.h"

#define TINY "--model mlp --mlp-hidden 16 --data-dir d "

static void is_narrow(const char *text) {
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        cr_expect_leq(strcspn(line, "\n"), 80, "%.*s", (int)strcspn(line, "\n"), line);
    cr_expect(plain_lines(text));
}

/* The value of one entry of a list: that whose `what` and device are these. */
static const struct json *entry(const struct json *list, const char *what, int device) {
    for (const struct json *x = list->child; x; x = x->next)
        if (!strcmp(json_text(x, "what"), what) && json_int(x, "device") == device) return x;
    cr_assert_fail("no entry %s of device %d", what, device);
    return NULL;
}

/* The figures of a pair against the two files that they are made of. */
static void check_pair(const struct json *pair, const struct json *a, const struct json *b) {
    static const char *const causes[][2] = {{"activations", "activations"},
                                            {"params", "params"},
                                            {"gathered output", "gathered_output"}};
    const struct json *runs[] = {json_at(a, json_text(pair, "a")),
                                 json_at(b, json_text(pair, "b"))};
    int is_dp = !strcmp(json_text(pair, "a"), "dp");
    for (int i = 0; i < 2; i++) {
        const char *side = i ? "b" : "a";
        char path[96];
        for (int d = 0; d < 2; d++) {
            const struct json *device = json_at(runs[i], d ? "per_device/1" : "per_device/0");
            for (int c = 0; c < (is_dp && d == 0 ? 3 : 2); c++) {
                snprintf(path, sizeof path, "memory_at_peak_by_cause/%s", causes[c][1]);
                cr_expect_eq(
                    json_double(entry(json_at(pair, "memory_at_peak"), causes[c][0], d), side),
                    json_double(device, path), "%s", path);
            }
            const struct json *forward = entry(json_at(pair, "times"), "forward", d);
            snprintf(path, sizeof path, "%s/p90_ns", side);
            cr_expect_eq(json_double(forward, path), json_double(device, "phase_p90_ns/forward"));
            snprintf(path, sizeof path, "%s/p50_ns", side);
            cr_expect_eq(json_double(forward, path),
                         json_double(device, "phase_median_ns/forward"));
            cr_expect_float_eq(json_double(entry(json_at(pair, "bytes_a_step"), "in", d), side),
                               json_double(device, "bytes_in") / json_double(runs[i], "steps"),
                               1e-6);
        }
        snprintf(path, sizeof path, "images_per_second/%s", side);
        cr_expect_float_eq(json_double(pair, path), json_double(runs[i], "images_per_second"),
                           1e-6);
    }
}

Test(cli_diff, two_profiles, .timeout = 120, .init = cli_folder_make, .fini = cli_folder_remove) {
    struct cli c;
    put_data(64, 8);
    cli_well("profile " TINY "--devices 2 --steps 6 --batch-size 16 --json a");
    cli_well("profile " TINY "--devices 2 --steps 4 --batch-size 32 --workers 0 --json b");
    cli_run(&c, "diff a b --json j");
    cr_assert(c.status == 0 && !*c.err, "%d %s", c.status, c.err);
    is_narrow(c.out);
    struct json *a = json_of("a"), *b = json_of("b"), *j = json_of("j");
    cr_expect_eq(json_at(j, "pairs")->count, json_at(a, "runs")->count);
    for (const struct json *pair = json_at(j, "pairs")->child; pair; pair = pair->next)
        if (strcmp(json_text(pair, "a"), "single")) check_pair(pair, a, b);
    json_free(a), json_free(b), json_free(j);
    cr_expect(matches(c.out, "^DP +A +B +change$") && matches(c.out, "^DDP +A +B +change$"));
    cr_expect(matches(c.out, "^  batch_size +16 +32$") && matches(c.out, "^  steps +6 +4$") &&
                  matches(c.out, "^  --workers +- +0$") && !strstr(c.out, "--json"),
              "%s", c.out);
    cr_expect(matches(c.out, "^  forward( +[0-9.]+ \\([0-9.]+\\)){2} +([-+][0-9.]+ %|within "
                             "spread|equal)$"),
              "%s", c.out);
    cr_expect(matches(c.out, "^  gathered output +[0-9.]+ K?i?B +[0-9.]+ [KM]iB +\\+[0-9.]+ "),
              "%s", c.out);
    cr_expect(strstr(c.out, "losses: first differ at step 0: "), "another batch: %s", c.out);
    cli_free(&c);
}

/* The same flags give the same bits; another learning rate is seen behind the first update. A file
 * of compare and one of train share the run of the mode. */
Test(cli_diff, losses_and_other_subcommands, .timeout = 120, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    static const struct {
        const char *files, *says[3], *lacks;
    } table[] = {
        {"a a2",
         {"^what was asked: the same$", "equal in all digits at the 5 steps",
          "^bytes a step over links: the same on every device$"},
         "first differ"},
        {"a other", {"^  lr +0\\.2 +0\\.3$", "^losses: first differ at step 1: "}, "all digits"},
        {"a longer", {"^  steps +5 +7$", "equal in all digits at the 5 steps"}, "first differ"},
        {"a resumed", {"^  resumed_from_step +0 +5$", "no step is in both runs"}, "all digits"},
        {"a dp", {"^DDP \\| DP +A", "^  mode +ddp +dp$", "equal in all digits"}, "alone"},
        {"compared a",
         {"^in A alone: single, DP$", "equal in all digits at the 5 steps", "in A alone; compare"},
         "in B alone:"},
        {"compared compared",
         {"^verdict against single: identical and identical$", "^images/s .* equal$",
          "^memory at its peak: the same on every device$"},
         "alone"},
    };
    put_data(64, 8);
    cli_well("train " TINY
             "--mode ddp --devices 2 --batch-size 16 --steps 5 --json a --checkpoint k");
    cli_well("train " TINY "--mode ddp --devices 2 --batch-size 16 --steps 5 --json a2");
    cli_well("train " TINY
             "--mode ddp --devices 2 --batch-size 16 --steps 5 --lr 0.3 --json other");
    cli_well("train " TINY "--mode ddp --devices 2 --batch-size 16 --steps 7 --json longer");
    cli_well("train " TINY "--mode ddp --devices 2 --batch-size 16 --steps 7 --resume k --json "
             "resumed");
    cli_well("train " TINY "--mode dp --devices 2 --batch-size 16 --steps 5 --json dp");
    cli_well("compare " TINY "--devices 2 --batch-size 16 --steps 5 --json compared");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct cli c;
        cli_run(&c, "diff %s", table[i].files);
        cr_expect(c.status == 0 && !*c.err, "%s: %d %s", table[i].files, c.status, c.err);
        is_narrow(c.out);
        for (int k = 0; k < 3 && table[i].says[k]; k++)
            cr_expect(matches(c.out, table[i].says[k]), "%s: no '%s' in %s", table[i].files,
                      table[i].says[k], c.out);
        cr_expect(!strstr(c.out, table[i].lacks), "%s: %s", table[i].files, c.out);
        cli_free(&c);
    }
}

static void put_text(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    fputs(text, f);
    fclose(f);
}

Test(cli_diff, wrong_files, .timeout = 120, .init = cli_folder_make, .fini = cli_folder_remove) {
    static const struct {
        int status;
        const char *says, *words;
    } table[] = {
        {2, "diff: 0 files: give two", ""},
        {2, "diff: 1 file: give two", "a"},
        {2, "third file", "a a a"},
        {2, "unknown option: --jsno: did you mean --json?", "a a --jsno x"},
        {2, "--json: no value", "a a --json"},
        {1, "none: cannot be read: No such file", "a none"},
        {1, "d: cannot be read: Is a directory", "d a"},
        {1, "text|byte 0", "text a"},
        {1, "list: no \"schema\"|wrote with --json", "list a"},
        {1, "newer: schema 2: this duet reads schema 1", "a newer"},
        {1, "nothing: no runs: duet doctor has none", "nothing a"},
        {1, "unnamed: a run has no name", "unnamed a"},
        {1, "large: dp: run record: cores: 4294967298: it was written by another", "large a"},
        {1, "broken: dp: run record: |another version", "broken a"},
        {1, "no run is in both files: a has single, b has dp, ddp", "a b"},
        {1, "no/folder/j", "a a --json no/folder/j"},
    };
    put_data(16, 8);
    cli_well("train " TINY "--batch-size 16 --steps 1 --json a");
    put_text("text", "losses");
    put_text("list", "[1]");
    put_text("newer", "{\"schema\": 2, \"command\": \"train\", \"runs\": []}");
    put_text("nothing", "{\"schema\": 1, \"command\": \"doctor\", \"findings\": []}");
    put_text("unnamed", "{\"schema\": 1, \"runs\": [7]}");
    put_text("large", "{\"schema\": 1, \"runs\": [{\"name\": \"dp\", \"title\": \"DP\", \"mode\": "
                      "\"dp\", \"cores\": 4294967298}]}");
    put_text("broken", "{\"schema\": 1, \"runs\": [{\"name\": \"dp\", \"title\": \"DP\", \"mode\": "
                       "\"dp\"}]}");
    put_text("b", "{\"schema\": 1, \"runs\": [{\"name\": \"dp\", \"title\": \"DP\", "
                  "\"does_not_fit\": \"full\"}, {\"name\": \"ddp\", \"title\": \"DDP\", "
                  "\"does_not_fit\": \"full\"}]}");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        cli_fails(table[i].status, table[i].says, "diff %s", table[i].words);
    struct cli c;
    cli_run(&c, "diff b b");
    cr_expect(c.status == 0 && strstr(c.out, "\nDP: does not fit in A and B\n"), "%s", c.out);
    cli_free(&c);
}
