/* Ranks of `duet run` that die, are stopped or are held up for a moment in any collective, at
 * random times. Whenever that happens, the command ends within a second of the death or of the
 * deadline and names the rank that was the cause, or goes on as if nothing had been; no process, no
 * shared memory and no file is left behind.
 *
 * The choices follow a seed, which is printed; DUET_SEED=N repeats them, though not what the
 * processes do at those times. DUET_SECONDS=N: the test goes on for N seconds; DUET_ROUNDS=N: for
 * that many rounds. DUET_SHOW=1 prints each. */

#include "tests/cli/kills.h"

enum { EARLIEST_MS = 1, LATEST_MS = 250, PAUSE_MS = 150, MOST_RANKS = 4 };
enum deed { KILL, TERMINATE, ABORT, STOP, PAUSE, KILL_LAUNCHER, DEEDS };
static const char *const deed_names[DEEDS] = {"kill", "terminate", "abort",
                                              "stop", "pause",     "kill the launcher of"};
static const int signals[DEEDS] = {SIGKILL, SIGTERM, SIGABRT, SIGSTOP, SIGSTOP, SIGKILL};

static const char *const calls[] = {"all_reduce",        "reduce",         "broadcast",
                                    "all_gather",        "gather",         "scatter",
                                    "all_to_all",        "reduce_scatter", "send_recv",
                                    "recv_any",          "barrier",        "monitored_barrier",
                                    "all_to_all_uneven", "objects",        "all"};
enum { CALLS = sizeof calls / sizeof *calls };
static const int counts[] = {1, 100, 5000, 200001}; /* the last is longer than a window */

/* The deadline of each wait where a rank is stopped for good, and anywhere else, where none may
 * pass however busy the machine is. */
static const double STOP_TIMEOUT_S = 1, OTHER_TIMEOUT_S = 60;
/* Promised is one second after the death, or after the deadline. The rest is for a busy machine and
 * for sanitizers; how many took longer than promised is printed. */
static const double PROMISED_S = 1, END_S = 15;

struct round {
    enum deed deed;
    int ranks, call, count, begun, tee, delay_ms, victim;
    char text[160];
};

static struct round draw(struct rng *rng) {
    struct round r = {.deed = (enum deed)below(rng, DEEDS),
                      .ranks = 2 + below(rng, MOST_RANKS - 1),
                      .call = below(rng, CALLS),
                      .count = counts[below(rng, 4)],
                      .begun = below(rng, 2),
                      .tee = below(rng, 2),
                      .delay_ms = EARLIEST_MS + below(rng, LATEST_MS)};
    r.victim = below(rng, r.ranks);
    snprintf(r.text, sizeof r.text, "%s of %d x %d%s: %s rank %d after %d ms%s", calls[r.call],
             r.ranks, r.count, r.begun ? ", begun" : "", deed_names[r.deed], r.victim, r.delay_ms,
             r.tee ? ", tee" : "");
    return r;
}

/* ---- what must not be left ---- */

/* Memory with a name would stay behind a rank that is killed. So ranks have none: 0 lines of the
 * process's map name a file of /dev/shm. */
static int named_memory(pid_t pid) {
    char path[64], line[1024];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        count += strstr(line, "/dev/shm/") != NULL;
    if (f) fclose(f);
    return count;
}

/* ---- one round ---- */

/* The process of that rank; 0: it has not begun. */
static pid_t process_of(const struct cli *c, int rank) {
    pid_t found = 0;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all && !found && (entry = readdir(all));) {
        pid_t pid = atoi(entry->d_name);
        if (pid > 0 && cli_parent_of(pid) == c->pid && cli_rank_of(pid) == rank) found = pid;
    }
    if (all) closedir(all);
    return found;
}

/* The last line says which rank did not come. Who receives from anybody cannot know. */
static int names_the_missing(const struct round *r, const char *err) {
    char late[64], waits[64], absent[64], first[64];
    const char *line = strstr(err, "\nduet: ");
    snprintf(late, sizeof late, "no word from rank %d after", r->victim);
    snprintf(waits, sizeof waits, "rank %d does not, and may be stopped", r->victim);
    snprintf(absent, sizeof absent, "Rank %d failed to pass monitoredBarrier", r->victim);
    snprintf(first, sizeof first, "duet: rank %d: ", r->victim);
    if (!line) return 0;
    if (strstr(line, "recv") && strstr(line, "from any rank: nothing came")) return 1;
    return (strstr(line, late) || strstr(line, waits) || strstr(line, absent)) &&
           !strstr(line, first);
}

/* The report's first line of ranks names the cause: "root cause (first failure)   rank 2   pid 7 "
 * and its signal. */
static void check_cause(const struct round *r, const struct cli *c, pid_t pid) {
    static const char *const names[DEEDS] = {"SIGKILL", "SIGTERM", "SIGABRT"};
    const char *line = strstr(c->err, "root cause (first failure)");
    int rank = -1, told = -1;
    cr_expect(line && sscanf(line, "root cause (first failure) rank %d pid %d", &rank, &told) == 2,
              "%s: no root cause: %s", r->text, c->err);
    if (r->deed == STOP) { /* who waited for it was the first to fail, and says so */
        cr_expect(names_the_missing(r, c->err), "%s: it is not named: %s", r->text, c->err);
        return;
    }
    cr_expect(rank == r->victim && told == pid, "%s: not rank %d, pid %d: %s", r->text, r->victim,
              (int)pid, c->err);
    cr_expect(line && strstr(line, names[r->deed]), "%s: no %s: %s", r->text, names[r->deed],
              c->err);
}

static double play(const struct round *r) {
    struct cli c;
    double timeout = r->deed == STOP ? STOP_TIMEOUT_S : OTHER_TIMEOUT_S;
    int here = cli_files();
    cli_start(&c,
              "run --nproc-per-node %d %s%s/" BUILD_DIR "/tests/cli/helper_collectives %s %d %g%s",
              r->ranks, r->tee ? "--tee 3 --log-dir logs " : "", cli_root_path, calls[r->call],
              r->count, timeout, r->begun ? " begun" : "");
    pid_t pid = cli_find_rank(&c, r->victim);
    usleep((useconds_t)r->delay_ms * 1000);
    cr_expect_eq(named_memory(pid), 0, "%s: shared memory with a name", r->text);
    int64_t start = now_ns();
    int want = 128 + signals[r->deed];
    kill(r->deed == KILL_LAUNCHER ? c.pid : pid, signals[r->deed]);
    if (r->deed == PAUSE) {
        usleep(PAUSE_MS * 1000);
        kill(pid, SIGCONT);
        usleep(PAUSE_MS * 1000);
        cr_expect_eq(process_of(&c, r->victim), pid, "%s: it has ended", r->text);
        start = now_ns();
        kill(c.pid, SIGTERM);
        want = 128 + SIGTERM;
    }
    if (r->deed == STOP) want = 1;
    cli_wait(&c);
    double seconds = (double)(now_ns() - start) * 1e-9 - (r->deed == STOP ? timeout : 0);
    if (getenv("DUET_SHOW"))
        fprintf(stderr, "%-70s %d %5.2f s %s", r->text, c.status, seconds, c.err);
    cr_expect_eq(c.status, want, "%s: status %d, not %d: %s", r->text, c.status, want, c.err);
    if (r->deed <= STOP) check_cause(r, &c, pid);
    cr_expect_lt(seconds, END_S, "%s: took %g s: %s", r->text, seconds, c.err);
    if (r->tee) cr_expect_eq(system("rm -r logs"), 0);
    cr_expect_eq(cli_files(), here, "%s: left a file", r->text);
    cli_free(&c);
    return seconds;
}

Test(cli_run_kills, at_any_moment, .timeout = 3000, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    const char *seconds = getenv("DUET_SECONDS"), *count = getenv("DUET_ROUNDS");
    unsigned long long seed = test_seed();
    const double most_s = seconds ? atof(seconds) : count ? 2900 : 2;
    const int most = count ? atoi(count) : 1 << 30;
    int rounds = 0, late = 0;
    double slowest = 0;
    struct rng rng;
    fprintf(stderr, "kills under duet run: DUET_SEED=%llu repeats these\n", seed);
    rng_seed(&rng, seed);
    for (int64_t end = deadline_after(most_s); now_ns() < end && rounds < most; rounds++) {
        struct round r = draw(&rng);
        double took = play(&r);
        if (took > slowest) slowest = took;
        late += took > PROMISED_S;
    }
    fprintf(stderr,
            "kills under duet run: %d rounds, the slowest end %.2f s, %d of them later than %g s\n",
            rounds, slowest, late, PROMISED_S);
    cr_assert(rounds > 0);
}
