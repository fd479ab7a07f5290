/* Tests that duet run keeps torchrun's promises: the environment of each rank, output prefixed with
 * its rank, the exit status of the first failure, and no process left behind. */
#include <signal.h>

#include "tests/app/cli/run.h"

/* A program of shell words in the test's folder. */
static void script(const char *name, const char *text) {
    char all[1024];
    snprintf(all, sizeof all, "#!/bin/sh\n%s\n", text);
    cli_put(name, all);
    cr_assert_eq(chmod(name, 0755), 0);
}

static void holds(const char *path, const char *want) {
    char *text = cli_read(path, NULL);
    cr_assert_str_eq(text, want, "%s: '%s'", path, text);
    free(text);
}

#define HAS(text, word) cr_assert_not_null(strstr((text), (word)), "no '%s' in: %s", (word), (text))

CliTest(cli_run, ranks_get_torchruns_environment, 60) {
    script("show", "echo \"$RANK $LOCAL_RANK $ROLE_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR "
                   "$GROUP_RANK $GROUP_WORLD_SIZE $ROLE_WORLD_SIZE $ROLE_NAME "
                   "$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $1 $2\"\n"
                   "[ $MASTER_PORT -gt 0 ] && [ -n \"$TORCHELASTIC_RUN_ID\" ]");
    cli_says(0,
             "0 0 0 3 3 127.0.0.1 0 1 3 default 0 0 --a b\n|1 1 1 3 3 127.0.0.1 0 1 3 default 0 0 "
             "--a b\n|2 2 2 3 3 127.0.0.1 0 1 3 default 0 0 --a b\n",
             "run --standalone --nproc_per_node=3 --nnodes=1 --node-rank 0 --master-addr localhost "
             "./show --a b");
}

/* A second job next to the first, with the second line of PyTorch's tutorials. */
CliTest(cli_run, a_second_job_has_an_address_and_a_port_of_its_own, 60) {
    script("show", "echo \"$MASTER_ADDR:$MASTER_PORT $*\"");
    cli_says(0, "127.0.0.2:29502 --lr 1\n",
             "run --nproc_per_node=2 --master_addr=127.0.0.2 --master_port=29502 ./show --lr 1");
}

/* Programs of process groups, found along PATH or by a path. */
CliTest(cli_run, process_groups_meet, 60) {
    cli_says(0, "rank 0: [0, 1, 2, 3, 4]\n|rank 3: [15, 16, 17, 18, 19]\n",
             "run --nproc-per-node 4 %s/" BUILD_DIR "/examples/scatter", cli_root_path);
}

CliTest(cli_run, lines_begin_with_the_rank, 60) {
    script("talk", "echo out $RANK; echo err $RANK >&2; printf 'no end of line'");
    cli_says(0,
             "[default0]:out 0\n|[default0]:no end of line\n|[default1]:out 1\n|"
             "[default1]:no end of line\n|^err 0$|^err 1$",
             "run --nproc-per-node 2 --tee 1 ./talk");
    cli_says(0, "[default1]:err 1\n", "run --nproc-per-node 2 --tee 3 ./talk");
    script("long", "head -c 20000 /dev/zero | tr '\\0' x; echo end");
    cli_says(0, "x\n[default0]:x|xend\n", "run --tee 1 ./long"); /* a long line is cut */
}

/* The reader of the output takes its time, and a process that a rank left behind holds the pipe
 * open: all that the rank has printed still comes. */
CliTest(cli_run, output_waits_for_its_reader, 60) {
    enum { LINES = 110, LINE = 1000 }; /* more than one pipe holds, less than two */
    char command[PATH_MAX + 256];
    script("much", "sleep 100 &\nfor i in $(seq 110); do printf '%0999d\\n' $i; done");
    snprintf(command, sizeof command,
             "%s/" BUILD_DIR "/duet run --tee 1 ./much | (sleep 2.2; wc -c >counted)",
             cli_root_path);
    cr_assert_eq(system(command), 0);
    char want[32];
    snprintf(want, sizeof want, "%d\n", LINES * (LINE + (int)strlen("[default0]:")));
    holds("counted", want);
    snprintf(command, sizeof command, "%s/" BUILD_DIR "/duet run --tee 1 echo x >/dev/full",
             cli_root_path);
    cr_assert_eq(WEXITSTATUS(system(command)), 1, "what cannot be written is a failure");
}

/* What ranks start ends with the job, however it is started and however the ranks end. */
CliTest(cli_run, nothing_is_left_running, 60) {
    static const char *const left[] = {
        "sleep 100 &", "setsid sleep 100 &", "(setsid sh -c 'sleep 100; true' &)",
        "(trap '' TERM HUP; sleep 100; true) &", "sleep 100 & kill -STOP $!"};
    for (size_t i = 0; i < 2 * sizeof left / sizeof *left; i++) {
        char text[128];
        snprintf(text, sizeof text, "%s\nexit %d", left[i / 2], 7 * (int)(i % 2));
        script("leaves", text);
        int64_t start = now_ns();
        /* asserts that no process is left */
        cli_says(7 * (int)(i % 2), "", "run --nproc-per-node 2 ./leaves");
        cr_assert_lt(now_ns() - start, 10000000000, "%s", text);
    }
    /* a process that ends soon is not killed */
    script("ends", "(sleep 0.2; echo done >word) &\nexit 0");
    cli_well("run ./ends");
    holds("word", "done\n");
}

/* The first failure is reported, with its signal. */
CliTest(cli_run, a_failure_is_reported, 60) {
    struct cli c;
    script("dies", "[ $RANK = 1 ] && kill -SEGV $$\nexec sleep 20");
    cli_says(128 + SIGSEGV, "duet: rank 1 (pid|ended by signal 11 (Segmentation fault)",
             "run --nproc-per-node 3 ./dies");
    /* processes started by ranks end with them */
    script("status", "sleep 20 &\n[ $RANK = 1 ] && exit 42\nsleep 20");
    cli_start(&c, "run --nproc-per-node 2 ./status");
    cli_wait_beside(&c, 1);
    cr_assert(cli_nobody_left(CLI_LEFT_SECONDS));
    cr_assert_eq(c.status, 42, "%s", c.err);
    HAS(c.err, "ended with status 42");
    cli_free(&c);
}

/* Two jobs at once, each of which meets its own ranks: sums of 2 and of 4 of them. */
static void two_jobs(const char *words) {
    struct cli jobs[2];
    for (int j = 0; j < 2; j++)
        cli_start(&jobs[j], "run --nproc-per-node %d %s %s/" BUILD_DIR "/examples/all_reduce",
                  2 + 2 * j, words, cli_root_path);
    for (int j = 0; j < 2; j++) {
        cli_wait_beside(&jobs[j], 2);
        cr_assert_eq(jobs[j].status, 0, "%s", jobs[j].err);
        for (int r = 0; r < 2 + 2 * j; r++) {
            char line[64];
            snprintf(line, sizeof line, "rank %d: [[%d, %d]]\n", r, j ? 10 : 3, j ? 10 : 3);
            HAS(jobs[j].out, line);
        }
        cli_free(&jobs[j]);
    }
    cr_assert(cli_nobody_left(CLI_LEFT_SECONDS));
}

CliTest(cli_run, two_jobs_never_meet, 60) {
    two_jobs("--master-port 4711");
    /* behind a program that closes what it has inherited, as Python's subprocess does, ranks meet
     * by a name */
    script("between", "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-\n\"$@\"");
    two_jobs("./between");
}

/* Waits until each of two ranks has made its file. */
static void wait_for_ranks(void) {
    int64_t deadline = deadline_after(CLI_SECONDS);
    while (access("ready0", F_OK) || access("ready1", F_OK)) {
        cr_assert_lt(now_ns(), deadline, "the ranks did not start");
        usleep(2000);
    }
    unlink("ready0");
    unlink("ready1");
}

/* A signal reaches the ranks as it is, and they may end in their own way. Ranks that do not end are
 * killed when their time is over. */
CliTest(cli_run, signals_are_passed_on, 60) {
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    static const char *const names[] = {"TERM", "INT", "HUP", "QUIT"};
    enum { SIGNALS = sizeof signals / sizeof *signals };
    struct cli c;
    for (int i = 0; i < SIGNALS; i++) /* background jobs of a script ignore these signals */
        signal(signals[i], SIG_DFL);
    script("saves", "(trap '' TERM INT HUP QUIT; exec sleep 100) &\n"
                    "for s in TERM INT HUP QUIT; do trap \"echo $RANK: $s; exit 0\" $s; done\n"
                    ">ready$RANK\nwhile :; do sleep 0.01; done");
    for (int i = 0; i < SIGNALS; i++) {
        cli_start(&c, "run --nproc-per-node 2 --tee 1 ./saves");
        wait_for_ranks();
        kill(c.pid, signals[i]);
        cli_wait_beside(&c, 1);
        cr_assert(cli_nobody_left(CLI_LEFT_SECONDS));
        cr_assert_eq(c.status, 128 + signals[i], "%s", c.err);
        for (int r = 0; r < 2; r++) {
            char line[32];
            snprintf(line, sizeof line, "[default%d]:%d: %s\n", r, r, names[i]);
            HAS(c.out, line);
        }
        cr_assert_null(strstr(c.err, "were killed"));
        cli_free(&c);
    }
    script("hangs", "trap '' TERM\n>ready$RANK\nwhile :; do sleep 0.01; done");
    for (int twice = 0; twice < 2; twice++) { /* a second signal does not wait for the deadline */
        cli_start(&c, "run --nproc-per-node 2 --shutdown-timeout %s ./hangs",
                  twice ? "100" : "0.2");
        wait_for_ranks();
        int64_t start = now_ns();
        kill(c.pid, SIGTERM);
        for (siginfo_t ended = {0}; twice && !ended.si_pid; usleep(200)) {
            /* within a tenth of a second it counts as the first; the last ones come too late */
            kill(c.pid, SIGTERM);
            cr_assert_eq(waitid(P_PID, (id_t)c.pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
        }
        cli_wait_beside(&c, 1);
        cr_assert(cli_nobody_left(CLI_LEFT_SECONDS));
        cr_assert_eq(c.status, 128 + SIGTERM, "%s", c.err);
        HAS(c.err, "signal 15 (Terminated) to the launcher: ranks that did not end then were");
        cr_assert(twice || now_ns() - start >= 200000000);
        cli_free(&c);
    }
}

/* Killing the launcher ends the ranks. */
CliTest(cli_run, ranks_end_with_the_launcher, 60) {
    struct cli c;
    script("waits", ">ready$RANK\nexec sleep 100");
    cli_start(&c, "run --nproc-per-node 2 --tee 3 ./waits");
    wait_for_ranks();
    kill(c.pid, SIGKILL);
    cli_wait_beside(&c, 1);
    cr_assert(cli_nobody_left(CLI_LEFT_SECONDS));
    cr_assert_eq(c.status, 128 + SIGKILL, "%s", c.err);
    cli_free(&c);
}

CliTest(cli_run, misuse, 60) {
    cli_fails(2, "no program was given", "run");
    cli_fails(127, "could not start nosuch|no such program", "run nosuch");
    cli_fails(2, "mpirun -np 6 --host far:3,MACHINE1:3 true -v",
              "run --nnodes 2 --node_rank=1 --master-addr far --nproc-per-node 3 true -v");
    cli_fails(2, "--node-rank: 1: only one machine", "run --node_rank=1 true");
    cli_fails(2, "--master-addr: far: is another machine", "run --master-addr far true");
    cli_fails(2, "unknown option: --max-restarts", "run --max-restarts 3 true");
    cli_fails(2, "--nproc-per-node|1 to 64", "run --nproc-per-node 65 true");
    cli_fails(2, "--shutdown-timeout|-1", "run --shutdown-timeout -1 true");
    script("train.py", "");
    cr_assert_eq(chmod("train.py", 0644), 0);
    cli_fails(127, "could not start ./train.py|python and its script", "run ./train.py");
    cli_fails(2, "did you mean --nproc-per-node?", "run --nproc-per-nod 1 true");
    cli_fails(2, "-n: did you mean --nproc-per-node?", "run -n 2 true"); /* mpirun's */
    cli_fails(2, "--tee|4", "run --tee 4 true");
}
