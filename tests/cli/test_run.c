/* duet run: what torchrun promises. The environment of each rank, output in files and with its rank
 * in front, restarts of all ranks, the report of a failure, and no process left behind. */
#include <signal.h>

#include "device/device.h"
#include "tests/cli/run.h"

/* A program of shell words in the test's folder. */
static void script(const char *name, const char *text) {
    FILE *file = fopen(name, "w");
    cr_assert_not_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", text);
    cr_assert_eq(fclose(file), 0);
    cr_assert_eq(chmod(name, 0755), 0);
}

static void holds(const char *path, const char *want) {
    char text[256] = "";
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s: not there", path);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    cr_assert_str_eq(text, want, "%s: '%s'", path, text);
}

#define HAS(text, word) cr_assert_not_null(strstr((text), (word)), "no '%s' in: %s", (word), (text))

Test(cli_run, ranks_get_torchruns_environment, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli c;
    script("show", "echo \"$RANK $LOCAL_RANK $ROLE_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $MASTER_ADDR "
                   "$GROUP_RANK $GROUP_WORLD_SIZE $ROLE_WORLD_SIZE $ROLE_NAME "
                   "$TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $1 $2\"\n"
                   "[ $MASTER_PORT -gt 0 ] && [ -n \"$TORCHELASTIC_RUN_ID\" ]");
    cli_run(&c, "run --standalone --nproc_per_node=3 --max_restarts 2 --nnodes=1:1 "
                "--monitor-interval 0.1 --no-python --node-rank 0 --master-addr localhost "
                "--rdzv-backend c10d ./show --a b");
    cr_assert_eq(c.status, 0, "%s", c.err);
    HAS(c.out, "0 0 0 3 3 127.0.0.1 0 1 3 default 0 2 --a b\n");
    HAS(c.out, "1 1 1 3 3 127.0.0.1 0 1 3 default 0 2 --a b\n");
    HAS(c.out, "2 2 2 3 3 127.0.0.1 0 1 3 default 0 2 --a b\n");
    cli_free(&c);
    script("role", "[ $ROLE_NAME = trainer ]");
    cli_run(&c, "run --nproc-per-node cpu --master-port 4711 --role=trainer ./role");
    cr_assert_eq(c.status, 0, "%s", c.err);
    cli_free(&c);
}

/* A second job beside the first by the second line of PyTorch's texts; and the argument of the
 * older launcher, behind all others. */
Test(cli_run, a_second_job_has_an_address_and_a_port_of_its_own, .timeout = 60,
     .init = cli_folder_make, .fini = cli_folder_remove) {
    struct cli c;
    script("show", "echo \"$MASTER_ADDR:$MASTER_PORT $*\"");
    cli_run(&c, "run --nproc_per_node=2 --master_addr=127.0.0.2 --master_port=29502 --local_rank "
                "./show --lr 1");
    cr_assert_eq(c.status, 0, "%s", c.err);
    HAS(c.out, "127.0.0.2:29502 --lr 1 --local_rank=0\n");
    HAS(c.out, "127.0.0.2:29502 --lr 1 --local_rank=1\n");
    cli_free(&c);
}

/* Programs of process groups, found along PATH or by a path. */
Test(cli_run, process_groups_meet, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli c;
    cli_run(&c, "run --nproc-per-node 4 %s/" BUILD_DIR "/examples/scatter", cli_root_path);
    cr_assert_eq(c.status, 0, "%s", c.err);
    HAS(c.out, "rank 0: [0, 1, 2, 3, 4]\n");
    HAS(c.out, "rank 3: [15, 16, 17, 18, 19]\n");
    cli_free(&c);
}

Test(cli_run, output_goes_to_files_and_with_its_rank, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli c;
    script("talk", "echo out $RANK; echo err $RANK >&2; printf 'no end of line'");
    cli_run(&c, "run --nproc-per-node 2 --log-dir logs --redirects 0:1,1:0 --tee 1:3 ./talk");
    cr_assert_eq(c.status, 0, "%s", c.err);
    holds("logs/attempt_0/0/stdout.log", "out 0\nno end of line");
    holds("logs/attempt_0/1/stdout.log", "out 1\nno end of line");
    holds("logs/attempt_0/1/stderr.log", "err 1\n");
    cr_assert(access("logs/attempt_0/0/stderr.log", F_OK), "nobody asked for it");
    cr_assert_str_eq(c.out, "[default1]:out 1\n[default1]:no end of line\n");
    HAS(c.err, "err 0\n");
    HAS(c.err, "[default1]:err 1\n");
    cli_free(&c);
    cr_assert_eq(mkdir("temporary", 0777), 0); /* nobody has named a folder: a new one is named */
    setenv("TMPDIR", "temporary", 1);
    cli_run(&c, "run -t 1 --redirects 2 --role trainer ./talk");
    unsetenv("TMPDIR");
    cr_assert_eq(c.status, 0, "%s", c.err);
    cr_assert_str_eq(c.out, "[trainer0]:out 0\n[trainer0]:no end of line\n");
    cr_assert_null(strstr(c.err, "err 0"));
    char path[128] = "";
    const char *folder = strstr(c.err, "are in temporary/duet-run-");
    cr_assert(folder && sscanf(folder, "are in %100s", path) == 1, "%s", c.err);
    strcat(path, "/attempt_0/0/stderr.log");
    holds(path, "err 0\n");
    cli_free(&c);
}

/* The reader of the output takes its time, and a process that a rank left behind holds the pipe
 * open: all that the rank has printed still comes. */
Test(cli_run, output_waits_for_its_reader, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    enum { LINES = 110, LINE = 1000 }; /* more than one pipe holds, less than two */
    char command[PATH_MAX + 256];
    script("much",
           "sleep 100 &\necho $! >left\nfor i in $(seq 110); do printf '%0999d\\n' $i; done");
    snprintf(command, sizeof command,
             "%s/" BUILD_DIR
             "/duet run --log-dir logs --tee 1 ./much | (sleep 2.2; wc -c >counted); "
             "kill $(cat left)",
             cli_root_path);
    cr_assert_eq(system(command), 0);
    char want[32];
    snprintf(want, sizeof want, "%d\n", LINES * (LINE + (int)strlen("[default0]:")));
    holds("counted", want);
}

Test(cli_run, all_ranks_start_anew, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli c;
    script("third", "echo attempt $TORCHELASTIC_RESTART_COUNT rank $RANK\n"
                    "echo $MASTER_PORT >port$TORCHELASTIC_RESTART_COUNT\n"
                    "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0\n"
                    "[ $RANK = 1 ] && exit 5\nexec sleep 20");
    cli_run(&c, "run --nproc-per-node 2 --max-restarts 3 --log-dir logs --tee 1 ./third");
    cr_assert_eq(c.status, 0, "%s", c.err);
    holds("logs/attempt_0/1/stdout.log", "attempt 0 rank 1\n");
    holds("logs/attempt_2/1/stdout.log", "attempt 2 rank 1\n");
    HAS(c.out, "attempt 2 rank 0\n");
    HAS(c.out, "attempt 2 rank 1\n");
    HAS(c.err, "starting all 2 ranks anew, restart 2 of 3");
    cr_assert_null(strstr(c.err, "restart 3 of 3"));
    /* the first attempt's port may be taken meanwhile: each has its own */
    cr_assert(!cli_same_file("port0", "port1") || !cli_same_file("port1", "port2"));
    cli_free(&c);
    cli_run(&c, "run --nproc-per-node 2 --max-restarts 1 ./third");
    cr_assert_eq(c.status, 5, "%s", c.err);
    HAS(c.err, "attempt 2 of 2");
    cli_free(&c);
}

/* The first failure comes first, with the signal's name. */
Test(cli_run, a_failure_is_reported, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli c;
    script("dies", "[ $RANK = 1 ] && kill -SEGV $$\nexec sleep 20");
    cli_run(&c, "run --nproc-per-node 3 ./dies");
    cr_assert_eq(c.status, 128 + SIGSEGV, "%s", c.err);
    HAS(c.err, "./dies FAILED, attempt 1 of 1, 20");
    HAS(c.err, "\n  root cause (first failure)   rank 1 ");
    HAS(c.err, "signal 11 (SIGSEGV)\n");
    HAS(c.err, "ended by duet run, after the first failure\n");
    HAS(c.err, "duet: rank 1 (pid");
    cli_free(&c);
    /* what ranks have started ends with them */
    script("status", "sleep 20 &\n[ $RANK = 1 ] && exit 42\nsleep 20");
    cli_start(&c, "run --nproc-per-node 2 ./status");
    cli_wait_beside(&c, 1);
    cr_assert(cli_nobody_left(CLI_LEFT_SECONDS));
    cr_assert_eq(c.status, 42, "%s", c.err);
    HAS(c.err, "exit status 42\n");
    cli_free(&c);
}

/* Two jobs at once, which meet each its own ranks: sums of 2 and of 4 of them. */
Test(cli_run, two_jobs_never_meet, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli jobs[2];
    for (int j = 0; j < 2; j++)
        cli_start(&jobs[j],
                  "run --master-port 4711 --nproc-per-node %d %s/" BUILD_DIR "/examples/all_reduce",
                  2 + 2 * j, cli_root_path);
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

/* A program in between that closes what it has inherited, as Python's subprocess does. Two jobs at
 * once, since the ranks now meet by a name. */
Test(cli_run, ranks_behind_a_program_meet, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli jobs[2];
    script("between", "exec 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-\n\"$@\"");
    for (int j = 0; j < 2; j++)
        cli_start(&jobs[j], "run --nproc-per-node 3 ./between %s/" BUILD_DIR "/examples/all_reduce",
                  cli_root_path);
    for (int j = 0; j < 2; j++) {
        cli_wait_beside(&jobs[j], 2);
        cr_assert_eq(jobs[j].status, 0, "%s", jobs[j].err);
        HAS(jobs[j].out, "rank 2: [[6, 6]]\n");
        cli_free(&jobs[j]);
    }
    cr_assert(cli_nobody_left(CLI_LEFT_SECONDS));
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

/* A signal reaches the ranks as it is, and they may end in their own way. What does not end is
 * killed when its time is over. */
Test(cli_run, signals_are_passed_on, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    static const char *const names[] = {"TERM", "INT", "HUP", "QUIT"};
    enum { SIGNALS = sizeof signals / sizeof *signals };
    struct cli c;
    for (int i = 0; i < SIGNALS; i++) /* in the background of a script they are ignored */
        signal(signals[i], SIG_DFL);
    script("saves", "(trap '' TERM INT HUP QUIT; exec sleep 100) &\n"
                    "for s in TERM INT HUP QUIT; do trap \"echo $RANK: $s; exit 0\" $s; done\n"
                    ">ready$RANK\nwhile :; do sleep 0.01; done");
    for (int i = 0; i < SIGNALS; i++) {
        cli_start(&c, "run --nproc-per-node 2 --max-restarts 3 --log-dir logs --tee 1 ./saves");
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
        for (siginfo_t ended = {0}; twice && !ended.si_pid; usleep(20000)) {
            kill(c.pid, SIGTERM); /* within a tenth of a second it is still the first one */
            cr_assert_eq(waitid(P_PID, (id_t)c.pid, &ended, WEXITED | WNOHANG | WNOWAIT), 0);
        }
        cli_wait_beside(&c, 1);
        cr_assert(cli_nobody_left(CLI_LEFT_SECONDS));
        cr_assert_eq(c.status, 128 + SIGTERM, "%s", c.err);
        HAS(c.err, "signal 15 (Terminated) to the launcher: ranks that did not end by it were");
        cr_assert(twice || now_ns() - start >= 200000000);
        cli_free(&c);
    }
}

/* Whoever kills the launcher ends the ranks. */
Test(cli_run, ranks_end_with_the_launcher, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli c;
    script("waits", ">ready$RANK\nexec sleep 100");
    cli_start(&c, "run --nproc-per-node 2 --log-dir logs --tee 3 ./waits");
    wait_for_ranks();
    kill(c.pid, SIGKILL);
    cli_wait_beside(&c, 1);
    cr_assert(cli_nobody_left(CLI_LEFT_SECONDS));
    cr_assert_eq(c.status, 128 + SIGKILL, "%s", c.err);
    cli_free(&c);
}

Test(cli_run, misuse, .timeout = 60, .init = cli_folder_make, .fini = cli_folder_remove) {
    cli_fails(2, "no program was given", "run");
    cli_fails(2, "no program was given", "run --nproc-per-node 2");
    cli_fails(2, "run: nosuch: there is no such program", "run nosuch");
    cli_fails(2, "--nnodes: 2: several machines come later: give 1", "run --nnodes 2 true");
    cli_fails(2, "--node-rank: 1: several machines come later", "run --node_rank=1 true");
    cli_fails(2, "--master-addr: far: several machines come later", "run --master-addr far true");
    cli_fails(2, "--master-addr: 127.0.0.2.5: several", "run --master-addr=127.0.0.2.5 true");
    cli_fails(2, "--use-env: the local rank is in the environment, as LOCAL_RANK|leave it out",
              "run --use_env true");
    cli_fails(2, "--rdzv-endpoint: host:1: several machines come later",
              "run --rdzv-backend c10d --rdzv_endpoint host:1 true");
    cli_fails(2, "Unsupported nproc_per_node value: two", "run --nproc-per-node two true");
    cli_fails(2, "--nproc-per-node|1 to 64", "run --nproc-per-node 0 true");
    int gpus;
    if (device_probe(DEVICE_CUDA, &gpus))
        cli_fails(2, "--nproc-per-node: gpu: there is none to use|give a number, cpu or auto",
                  "run --nproc-per-node gpu true");
    cli_fails(2, "--max-restarts|-1", "run --max-restarts -1 true");
    cli_fails(2, "--monitor-interval|soon", "run --monitor-interval soon true");
    cli_fails(2, "--shutdown-timeout|-1", "run --shutdown-timeout -1 true");
    cli_fails(2, "run: .: is a folder", "run .");
    script("train.py", "");
    cr_assert_eq(chmod("train.py", 0644), 0);
    cli_fails(2, "may not be executed: start it as `python ./train.py`", "run ./train.py");
    script("here", "");
    cli_fails(2, "no such program along PATH: give ./here", "run here");
    cli_fails(2, "--nproc-per-node|1 to 64", "run --nproc-per-node 65 true");
    cli_fails(2, "did you mean --max-restarts?", "run --max-restart 1 true");
    cli_fails(2, "-n: did you mean --nproc-per-node?", "run -n 2 true"); /* mpirun's */
    cli_fails(2, "-np: did you mean --nproc-per-node?", "run -np 2 true");
    cli_fails(2, "--devices: did you mean --nproc-per-node?", "run --devices 2 true");
    cli_fails(2, "-m: names a Python module|give python -m MODULE as the program", "run -m x");
    cli_fails(2, "--tee|0 to 3", "run --tee 4 true");
    cli_fails(2, "--tee|RANK:0 to 3", "run --tee 0:1,2 true");
    cli_fails(2, "--standalone: takes no value", "run --standalone=1 true");
    cli_fails(2, "--log-dir: no value", "run --log-dir");
    cli_fails(1, "--log-dir: /proc/nowhere: No such file or directory\n",
              "run --log-dir /proc/nowhere --tee 1 true");
}

/* The disk of one rank's file is full: a line says so, and so does the status. Nothing else is
 * lost. */
Test(cli_run, a_full_disk, .timeout = 60, .init = cli_folder_make, .fini = cli_folder_remove) {
    struct cli c;
    cr_assert_eq(system("mkdir -p logs/attempt_0/0 && ln -s /dev/full logs/attempt_0/0/stdout.log"),
                 0);
    cli_run(&c, "run --nproc-per-node 2 --log-dir logs --tee 1 echo whole");
    cr_expect_eq(c.status, 1, "%d", c.status);
    cr_expect_not_null(strstr(c.err, "--tee: logs/attempt_0/0/stdout.log: No space left on device: "
                                     "it lacks what rank 0 prints from here on\n"),
                       "%s", c.err);
    cr_expect(strstr(c.out, "0]:whole\n") && strstr(c.out, "1]:whole\n"), "%s", c.out);
    cli_free(&c);
    char *other = cli_read("logs/attempt_0/1/stdout.log", NULL);
    cr_expect_str_eq(other, "whole\n");
    free(other);
}
