/* duet report on the files of remote calls: where each call spent its time, with times by hand. */
#include "tests/cli/run.h"

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    cr_assert_eq(fclose(file), 0);
}

#define HEAD(rank) "{\"duet_rpc\": 1, \"rank\": " rank ", \"workers\": [\"agent\", \"o:1\"], "

/* The agent's call 1 is on its way for 1 ms, waits for 2 ms and works for 90 ms, of which the
 * worker o:1 waits for two calls of its own: 10 to 30 ms and 20 to 40 ms behind its beginning at
 * 100 ms, together 30 ms. Then it takes 2 ms back. The last call fails, and its callee has kept
 * nothing. */
static void put_workers(void) {
    put("c.rpc.0", HEAD("0") "\"lost\": 0,\n"
                             "\"called\": [[\"play\", 1, 1, 0, 0, 8, 1016, 100000000, 195000000],\n"
                             "[\"gone\", 1, 2, 0, 1, 0, 100, 200000000, 260000000]],\n"
                             "\"served\": [[\"act\", 1, 281474976710657, 0, 0, 500, 12, 115000000, "
                             "116000000, 126000000],"
                             "\n[\"act\", 1, 281474976710658, 0, 0, 500, 12, 126000000, 127000000, "
                             "137000000]]}");
    put("c.rpc.1",
        HEAD(
            "1") "\"lost\": 3,\n"
                 "\"called\": [[\"act\", 0, 281474976710657, 1, 0, 12, 500, 110000000, "
                 "130000000],\n"
                 "[\"act\", 0, 281474976710658, 1, 0, 12, 500, 120000000, 140000000]],\n"
                 "\"served\": [[\"play\", 0, 1, 0, 0, 1016, 8, 101000000, 103000000, 193000000]]}");
}

Test(cli_remote_calls, say_where_their_time_went, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli c;
    put_workers();
    cli_run(&c, "report c --trace t.json");
    cr_assert_eq(c.status, 0, "%s", c.err);
    cr_expect_str_eq(
        c.out, "Remote calls of 2 workers: 4 in 160 ms. Functions worked for 80 ms, most of it\n"
               "  play at o:1 for agent: 60 ms. Calls were on their way for 21 ms and waited for\n"
               "  a thread or a device for 4 ms.\n"
               "  3 further calls were not kept.\n"
               "\n"
               "function                          calls  failed       mean        p99       bytes\n"
               "play                                  1       0      95 ms      95 ms       1 KiB\n"
               "gone                                  1       1      60 ms      60 ms       100 B\n"
               "act                                   2       0      20 ms      20 ms       1 KiB\n"
               "\n"
               "who calls whom               calls    there    queue     work in calls     back\n"
               "agent -> o:1\n"
               "  play                           1     1 ms     2 ms    60 ms    30 ms     2 ms\n"
               "  gone                           1\n"
               "o:1 -> agent\n"
               "  act                            2   5.5 ms     1 ms    10 ms     0 us   3.5 ms\n");
    cli_free(&c);
    char *trace = cli_read("t.json", NULL);
    cr_expect(strstr(trace, "\"rpc: o:1\"") && strstr(trace, "\"play for agent\""));
    cr_expect(strstr(trace, "\"tid\": 2, \"name\": \"act at agent\", \"cat\": \"called\", \"ts\": "
                            "10000.000, \"dur\": 20000.000"),
              "the first call of the function lies in its slice");
    cr_expect(strstr(trace, "\"tid\": 3, \"name\": \"act at agent\", \"cat\": \"called\", \"ts\": "
                            "20000.000, \"dur\": 20000.000"),
              "the second overlaps it, so it has a row of its own");
    cr_expect(strstr(trace, "\"name\": \"queue\", \"cat\": \"waiting\", \"ts\": 1000.000, \"dur\": "
                            "2000.000"));
    int arrows = 0;
    for (const char *at = trace; (at = strstr(at, "\"ph\": \"f\"")); at++)
        arrows++;
    cr_expect_eq(arrows, 6, "three calls, there and back: %d", arrows);
    free(trace);
}

/* One worker's file alone, beside the files of a group. */
Test(cli_remote_calls, one_end_is_enough, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli c;
    put_workers();
    cr_assert_eq(unlink("c.rpc.0"), 0);
    put("c.g.0", "{\"duet_calls\": 1, \"group\": \"g\", \"rank\": 0, \"ranks\": 1, \"lost\": 0,\n"
                 "\"calls\": [[1, \"barrier\", 0, 1000, 2000]]}");
    cli_run(&c, "report c");
    cr_assert_eq(c.status, 0, "%s", c.err);
    cr_expect(strstr(c.out, "Group g: 1 rank, 1 collectives"), "%s", c.out);
    cr_expect(strstr(c.out, "Remote calls of 2 workers: 3 in 92 ms.\n"
                            "  Only 1 of 2 workers left a file.\n"),
              "%s", c.out);
    cli_free(&c);
}

Test(cli_remote_calls, wrong_files_are_refused, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    static const char *const wrong[][2] = {
        {"{\"duet_rpc\": 1}", "it names no workers"},
        {"{\"duet_rpc\": 1, \"workers\": [\"agent\"]}", "remove those of earlier runs"},
        {"{\"duet_rpc\": 1, \"workers\": [\"agent\", \"b\"]}", "remove those of earlier runs"},
        {"{\"duet_rpc\": 1, \"workers\": [\"agent\", \"\\u0007\"]}", "a worker's name is none"},
        {HEAD("2") "\"called\": [], \"served\": []}", "its rank is none"},
        {HEAD("1") "\"called\": [], \"served\": []}", "its rank has another file"},
        {HEAD("0") "\"called\": []}", "it holds no calls"},
        {HEAD("0") "\"called\": [[\"f\", 1, 1]], \"served\": []}", "a call is torn"},
        {HEAD("0") "\"called\": [[\"f\", 1, 1, 0, 0, 0, 0, 9, -8]], \"served\": []}",
         "a call is torn"},
        {HEAD("0") "\"called\": [[\"f\\n\", 1, 1, 0, 0, 0, 0, 8, 9]], \"served\": []}",
         "a call is torn"},
        {HEAD("0") "\"called\": [[\"f\", 1, 1, 0, 0, 0, 0, 9, 8]], \"served\": []}",
         "a call ends before it begins"},
        {HEAD("0") "\"called\": [[\"f\", 2, 1, 0, 0, 0, 0, 8, 9]], \"served\": []}",
         "a call is of no worker"}};
    put_workers();
    cr_assert_eq(rename("c.rpc.1", "c.a.1"), 0);
    cr_assert_eq(unlink("c.rpc.0"), 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put("c.rpc.0", wrong[i][0]);
        cli_fails(1, wrong[i][1], "report c --trace t.json");
        cr_expect(access("t.json", F_OK), "a half-written timeline");
    }
}
