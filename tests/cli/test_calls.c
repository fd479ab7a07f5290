/* DUET_TRACE and duet report: the calls of a job of process groups, and who waited for whom. */
#include "tests/cli/run.h"

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    cr_assert_eq(fclose(file), 0);
}

/* Three ranks, with times by hand. all_reduce 1: rank 2 comes last, 30 ms behind rank 0 and 10 ms
 * behind rank 1. all_reduce 2: rank 0 comes last, and rank 1, whose part is over by then, waited
 * for no longer than its call took. Rank 1 alone has a third call, which counts nowhere. */
static void put_ranks(void) {
    put("c.g.0", "{\"duet_calls\": 1, \"group\": \"g\", \"rank\": 0, \"ranks\": 3, \"lost\": 0,\n"
                 "\"calls\": [[1, \"all_reduce\", 1024, 100000000, 140000000],\n"
                 "[1, \"send\", 8, 145000000, 146000000],\n"
                 "[2, \"all_reduce\", 1024, 170000000, 180000000]]}");
    put("c.g.1", "{\"duet_calls\": 1, \"group\": \"g\", \"rank\": 1, \"ranks\": 3, \"lost\": 2,\n"
                 "\"calls\": [[1, \"all_reduce\", 1024, 120000000, 140000000],\n"
                 "[2, \"all_reduce\", 1024, 160000000, 165000000],\n"
                 "[3, \"barrier\", 0, 180000000, 190000000]]}");
    put("c.g.2", "{\"duet_calls\": 1, \"group\": \"g\", \"rank\": 2, \"ranks\": 3, \"lost\": 0,\n"
                 "\"calls\": [[1, \"all_reduce\", 1024, 130000000, 140000000],\n"
                 "[2, \"all_reduce\", 1024, 169000000, 180000000]]}");
}

Test(cli_calls, the_rank_that_comes_last_is_named, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli c;
    put_ranks();
    cli_run(&c, "report c --trace t.json");
    cr_assert_eq(c.status, 0, "%s", c.err);
    cr_expect_str_eq(
        c.out, "Group g: 3 ranks, 2 collectives in 90 ms. The others waited most for rank 2,\n"
               "  which came last in 1 of them: 40 ms of the 46 ms that ranks waited in all. A\n"
               "  rank waited 17 % of the time on average.\n"
               "\n"
               "rank collectives messages      bytes   in calls     waited came last others wait\n"
               "   0           2        1   2.01 KiB      50 ms      30 ms         1        6 ms\n"
               "   1           3        0      2 KiB      35 ms      15 ms         0        0 us\n"
               "     2 further calls were not kept\n"
               "   2           2        0      2 KiB      21 ms       1 ms         1       40 ms\n"
               "\n"
               "call                       of  calls, a rank           mean  of it, waited\n"
               "all_reduce              1 KiB              2          16 ms        7.67 ms\n"
               "barrier                   0 B          0.333          10 ms           0 us\n"
               "send                      8 B          0.333           1 ms           0 us\n");
    cli_free(&c);
    char *trace = cli_read("t.json", NULL);
    cr_expect(strstr(trace, "\"wait for rank 2\""));
    cr_expect(strstr(trace, "\"g: rank(1)\""));
    cr_expect(strstr(trace, "\"ph\": \"s\""), "arrows");
    free(trace);
}

/* A name that a shell would take for a pattern, other files beside it, a group that made no call,
 * and a thousand calls. */
Test(cli_calls, odd_names_and_counts, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli c;
    FILE *file = fopen("[c].g.0", "w");
    fputs("{\"duet_calls\": 1, \"group\": \"g\", \"rank\": 0, \"ranks\": 1, \"calls\": [", file);
    for (int i = 1; i <= 1234; i++)
        fprintf(file, "%s[%d, \"barrier\", 0, %d, %d]", i > 1 ? "," : "", i, i, i + 999600);
    fputs("]}", file);
    cr_assert_eq(fclose(file), 0);
    put("[c].h.0",
        "{\"duet_calls\": 1, \"group\": \"h\", \"rank\": 0, \"ranks\": 1, \"calls\": []}");
    put("[c].h.0x", "none of them");
    for (int again = 0; again < 2; again++) {
        cli_run(&c, "report [c] --trace [c].line.json");
        cr_assert_eq(c.status, 0, "%s", c.err);
        cr_expect(strstr(c.out, "Group g: 1 rank, 1234 collectives in 1 ms.\n"), "%s", c.out);
        cr_expect(strstr(c.out, "          1234           1 ms "), "%s", c.out);
        cr_expect(strstr(c.out, "Group h: 1 rank, 0 collectives in 0 us.\n"), "%s", c.out);
        cli_free(&c);
    }
}

/* A file each of the ranks of the job and of the group made of two of them. */
static void run_traced(int ranks, const char *example) {
    struct cli c;
    setenv("DUET_TRACE", "calls", 1);
    cli_run(&c, "run --nproc-per-node %d %s/" BUILD_DIR "/examples/%s", ranks, cli_root_path,
            example);
    unsetenv("DUET_TRACE");
    cr_assert_eq(c.status, 0, "%s", c.err);
    cli_free(&c);
}

Test(cli_calls, ranks_leave_their_files, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli c;
    run_traced(4, "scatter");
    cli_run(&c, "report calls");
    cr_assert_eq(c.status, 0, "%s", c.err);
    cr_expect(strstr(c.out, "Group world: 4 ranks, 1 collectives in"), "%s", c.out);
    cr_expect(strstr(c.out, "\nscatter "), "%s", c.out);
    cli_free(&c);
    cr_assert_eq(unlink("calls.world.3"), 0);
    cli_run(&c, "report calls");
    cr_assert_eq(c.status, 0, "%s", c.err);
    cr_expect(strstr(c.out, "Only 3 of 4 ranks left a file, so nobody's waits are known."), "%s",
              c.out);
    cli_free(&c);
}

/* The buckets of a program's DDP: in each step all ranks begin the allreduce of each once. */
Test(cli_calls, buckets_are_a_group_of_their_own, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli c;
    run_traced(3, "mlp/ddp");
    cli_run(&c, "report calls");
    cr_assert_eq(c.status, 0, "%s", c.err);
    cr_expect(strstr(c.out, "Group world-ddp0: 3 ranks, 5 collectives in"), "%s", c.out);
    cr_expect(!strstr(c.out, "Only "), "%s", c.out);
    cli_free(&c);
}

Test(cli_calls, wrong_files_are_refused, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    static const char *const wrong[][2] = {
        {"{\"schema\": 1}", "it holds no calls"},
        {"{\"duet_calls\": 1, \"group\": \"g\", \"rank\": 3, \"ranks\": 3, \"calls\": []}",
         "its rank is none"},
        {"{\"duet_calls\": 1, \"group\": \"g\", \"rank\": 1, \"ranks\": 3, \"calls\": []}",
         "its rank has another file"},
        {"{\"duet_calls\": 1, \"group\": \"g\", \"rank\": 0, \"ranks\": 2, \"calls\": []}",
         "more or fewer ranks"},
        {"{\"duet_calls\": 1, \"group\": \"h\", \"rank\": 0, \"ranks\": 1, \"calls\": [[1]]}",
         "a call is torn"},
        {"{\"duet_calls\": 1, \"group\": \"h\", \"rank\": 0, \"ranks\": 1, \"calls\": "
         "[[1, \"barrier\", 0, 9, 8]]}",
         "no name or no times"},
        {"{\"duet_calls\": 1, \"group\": \"h\", \"rank\": 0, \"ranks\": 1, \"calls\": "
         "[[1, \"\\u001b[2J\", 0, 8, 9]]}",
         "a call's name is none"},
        {"{\"duet_calls\": 1, \"group\": \"\\u0007\", \"rank\": 0, \"ranks\": 1, \"calls\": []}",
         "its group's name is none"},
        {"{\"duet_calls\"", "c.x.0"}};
    put_ranks();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put("c.x.0", wrong[i][0]);
        cli_fails(1, wrong[i][1], "report c --trace t.json");
        cr_expect(access("t.json", F_OK), "a half-written timeline");
    }
    cli_fails(1, "run the job with DUET_TRACE=nothing", "report nothing");
    cli_fails(2, "give one, which DUET_TRACE named", "report");
}
