/* Tests DUET_TRACE and duet report: the calls of a job's groups, and who waited for whom. */
#include "tests/app/cli/run.h"

/* One rank's file: FILE.GROUP.RANK. Calls follow, then end_rank. */
static FILE *begin_rank(const char *file, const char *group, int rank, int ranks) {
    char path[64];
    snprintf(path, sizeof path, "%s.%s.%d", file, group, rank);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    fprintf(f,
            "{\"otherData\": {\"duet_calls\": 1, \"group\": \"%s\", \"rank\": %d, \"ranks\": %d}, "
            "\"traceEvents\": [{\"ph\": \"M\", \"name\": \"process_name\"}",
            group, rank, ranks);
    return f;
}

static void put_call(FILE *f, const char *name, int bytes, double ms, double end_ms) {
    fprintf(f,
            ",\n{\"ph\": \"X\", \"name\": \"%s\", \"ts\": %.3f, \"dur\": %.3f, \"args\": "
            "{\"bytes\": %d}}",
            name, ms * 1e3, (end_ms - ms) * 1e3, bytes);
}

static void end_rank(FILE *f) {
    fputs("]}", f);
    cr_assert_eq(fclose(f), 0);
}

/* Three ranks, with other bytes and times by hand. Waits count from 130 ms, when rank 2 begins.
 * all_to_all 2: rank 0 comes last, and rank 1, whose part is over by then, waited for no longer
 * than its call took. Rank 1 alone has a third call, which counts nowhere. */
static void put_ranks(void) {
    FILE *f = begin_rank("c", "g", 0, 3);
    put_call(f, "all_to_all", 1024, 100, 140);
    put_call(f, "send", 8, 145, 146);
    put_call(f, "all_to_all", 512, 170, 180);
    end_rank(f);
    f = begin_rank("c", "g", 1, 3);
    put_call(f, "all_to_all", 512, 120, 140);
    put_call(f, "all_to_all", 1024, 160, 165);
    put_call(f, "barrier", 0, 180, 190);
    end_rank(f);
    f = begin_rank("c", "g", 2, 3);
    put_call(f, "all_to_all", 1024, 130, 140);
    put_call(f, "all_to_all", 1024, 169, 180);
    end_rank(f);
}

CliTest(cli_calls, waits_of_each_rank, 60) {
    put_ranks();
    cli_says(0,
             "Group g: 3 ranks, 2 collectives; 60 ms from the time when all had begun.\n"
             "\n"
             "rank collectives      bytes     waited came last\n"
             "   0           2    1.5 KiB       0 ns         1\n"
             "   1           3    1.5 KiB       5 ms         0\n"
             "   2           2      2 KiB       1 ms         1\n",
             "report c.g.2 c.g.0 c.g.1");
}

/* Rank 1 holds up rank 0 by 20 ms in 13 of 15 steps, rank 0 by 2 s in the first and by 1 ms in one
 * more; by 9 s in a call at the start, and by 1 s in three more; and by 10 us in the second bucket
 * of each step, so that it comes last in most of the calls. */
CliTest(cli_calls, steps_tell_whom_to_blame, 60) {
    for (int rank = 0; rank < 2; rank++) {
        FILE *f = begin_rank("c", "g", rank, 2);
        put_call(f, "all_gather", 8, rank ? 100 : 9100, 9101);
        for (int i = 0; i < 3; i++)
            put_call(f, "broadcast", 64, 10000 + 1000 * i + (rank ? 0 : 1000), 11001 + 1000 * i);
        for (int step = 0; step < 15; step++) {
            double t = 20000 + 100 * step, zero = step == 1 ? 21 : 0;
            if (!step) t -= 2000, zero = 2000;
            put_call(f, "all_reduce", 4096, t + (rank ? step ? 20 : 0 : zero), t + 2050);
            t = 20060 + 100 * step;
            put_call(f, "all_reduce", 512, t + (rank ? 0 : 0.01), t + 1);
        }
        put_call(f, "barrier", 0, 24000, 24001);
        end_rank(f);
    }
    cli_says(0,
             "Group g: 2 ranks, 35 collectives; 14.90 s from the time when all had begun. In\n"
             "  the steps the others waited most for rank 1: it came last in 13 of 15 calls of\n"
             "  all_reduce of 4 KiB, a median of 20 ms late.\n",
             "report c.g.0 c.g.1");
}

/* Rank 1 comes last in all calls, but by 0.5 % of the time. */
CliTest(cli_calls, nobody_delays_the_others, 60) {
    for (int rank = 0; rank < 2; rank++) {
        FILE *f = begin_rank("c", "g", rank, 2);
        for (int i = 1; i <= 6; i++)
            put_call(f, "broadcast", 8, i + rank * 0.005, i + 0.1);
        end_rank(f);
    }
    cli_says(0, "begun. In\n  the steps no rank delays the others by 1 % of the time.\n",
             "report c.g.0 c.g.1");
}

/* A name with letters of its own, a group that made no call, and a thousand calls. */
CliTest(cli_calls, odd_names_and_counts, 60) {
    FILE *f = begin_rank("c-1", "g", 0, 1);
    for (int i = 1; i <= 1234; i++)
        put_call(f, "barrier", 0, i * 1e-6, i * 1e-6 + 0.9988);
    end_rank(f);
    end_rank(begin_rank("c-1", "h", 0, 1));
    cli_says(
        0, "Group g: 1 rank, 1234 collectives; 1 ms from|Group h: 1 rank, 0 collectives; 0 ns from",
        "report c-1.h.0 c-1.g.0");
}

/* A file each of the ranks of the job and of the group made of two of them. */
static void run_traced(int ranks, const char *example) {
    setenv("DUET_TRACE", "calls", 1);
    cli_says(0, "", "run --nproc-per-node %d %s/" BUILD_DIR "/examples/%s", ranks, cli_root_path,
             example);
    unsetenv("DUET_TRACE");
}

CliTest(cli_calls, ranks_leave_their_files, 60) {
    run_traced(4, "scatter");
    cli_says(0, "Group world: 4 ranks, 1 collectives; |!Only ",
             "report calls.world.0 calls.world.1 calls.world.2 calls.world.3");
    char *trace = cli_read("calls.world.3", NULL); /* Perfetto opens it unchanged */
    cr_expect(strstr(trace, "\"ph\": \"X\", \"pid\": 3") && strstr(trace, "\"scatter\""), "%s",
              trace);
    free(trace);
    cli_says(0, " Only 3 of 4|ranks left a file, so waiting times are unknown.",
             "report calls.world.0 calls.world.1 calls.world.2");
}

/* The buckets of a program's DDP: five steps with one, and the sum of the losses. */
CliTest(cli_calls, buckets_are_calls_of_the_group, 60) {
    run_traced(3, "mlp/ddp");
    cli_says(0, "Group world: 3 ranks, 10 collectives; |!Only ",
             "report calls.world.0 calls.world.1 calls.world.2");
    cr_expect_eq(system("test $(grep -c 'allreduce bucket 0.*bytes...6416' calls.world.2) = 5"), 0);
}

#define OF(group, rank, ranks)                                                      \
    "{\"otherData\": {\"duet_calls\": 1, \"group\": \"" group "\", \"rank\": " rank \
    ", \"ranks\": " ranks "}, \"traceEvents\": ["
#define CALL(name, ts, dur)                                                 \
    "{\"ph\": \"X\", \"name\": \"" name "\", \"ts\": " ts ", \"dur\": " dur \
    ", \"args\": {\"bytes\": 0}}]}"

CliTest(cli_calls, wrong_files_are_refused, 60) {
    static const char *const wrong[][3] = {
        {"c.x.0", "{\"schema\": 1}", "it holds no calls"},
        {"c.g.3", OF("g", "3", "3") "]}", "it holds no calls of a rank"},
        {"c.g.3", OF("g", "2", "3") "]}", "another file has the same rank"},
        {"c.g.3", OF("g", "0", "2") "]}", "a different number of ranks"},
        {"c.h.0", OF("h", "0", "1") "{\"ph\": \"X\"}]}", "a call is damaged"},
        {"c.h.0", OF("h", "0", "1") CALL("barrier", "9", "-1"), "a call is damaged"},
        {"c.h.0", OF("h", "0", "1") CALL("barrier", "1e300", "1"), "a call is damaged"},
        {"c.x.0", "{\"duet_calls\"", "c.x.0"}};
    put_ranks();
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cli_put(wrong[i][0], wrong[i][1]);
        cli_fails(1, wrong[i][2], "report c.g.0 c.g.1 c.g.2 %s", wrong[i][0]);
        cr_assert_eq(unlink(wrong[i][0]), 0);
    }
    cli_fails(1, "nothing: cannot be read", "report nothing");
    cli_fails(2, "no file: give those that DUET_TRACE=NAME has written", "report");
}
