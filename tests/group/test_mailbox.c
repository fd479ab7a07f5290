/* Tests messages: in order, of any size, in both directions at once, from any rank, and during
 * other calls. Messages with one tag keep their order. Messages with another tag neither disturb
 * them nor wait for them, in any order of the receives, even if a message has no receive yet. */
#include <pthread.h>

#include "base/random.h"
#include "tests/group/shared.h"

enum { TAGS = 4, EACH = 12, MOST = 4 };

static int begin(struct group *g, int receive, int peer, int tag, float *x, size_t count,
                 struct work **work) {
    struct group_call call = {.what = COLLECTIVE_SEND,
                              .count = count,
                              .peer = peer,
                              .receive = receive,
                              .tag = tag,
                              .input = x,
                              .output = x};
    return group_run(g, &call, work);
}

static float value(int from, int tag, int message, size_t i) {
    return (float)(from * 100000 + tag * 10000 + message * 100) + (float)(i % 90);
}

static void fill(float *x, int from, int tag, int message, size_t count) {
    for (size_t i = 0; i < count; i++)
        x[i] = value(from, tag, message, i);
}

static int check(const float *x, int from, int tag, int message, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (x[i] != value(from, tag, message, i))
            return fail(ERR_CHECK, "message %d of tag %d from rank %d: element %zu is %g, not %g",
                        message, tag, from, i, (double)x[i], (double)value(from, tag, message, i));
    return OK;
}

static int end(struct work *work, int code) {
    if (work && !code) code = work_wait(work);
    work_free(work);
    return code;
}

/* Every rank begins to send every other a long message, and only then receives. */
static int exchange(struct group *g, int message, size_t count) {
    int n = group_size(g), me = group_rank(g), code = OK;
    struct work *sends[8] = {0}, *receives[8] = {0};
    float *out = malloc((count + 1) * sizeof *out), *in = malloc(8 * (count + 1) * sizeof *in);
    fill(out, me, 0, message, count);
    for (int k = 1; k < n && !code; k++)
        code = begin(g, 0, (me + k) % n, 0, out, count, &sends[k]);
    for (int k = 1; k < n && !code; k++)
        code = begin(g, 1, (me + k) % n, 0, in + (size_t)k * count, count, &receives[k]);
    for (int k = 1; k < n; k++) {
        if (receives[k] && !code) code = work_wait(receives[k]);
        if (sends[k] && !code) code = work_wait(sends[k]);
        if (!code) code = check(in + (size_t)k * count, (me + k) % n, 0, message, count);
        if (!code && work_source(receives[k]) != (me + k) % n) code = fail(ERR_CHECK, "source");
        work_free(sends[k]);
        work_free(receives[k]);
    }
    free(out);
    free(in);
    return code;
}

/* Short messages do not wait for their receiver: as many as the mailbox has places. */
static int eager(struct group *g) {
    float x[4] = {0};
    int n = group_size(g), me = group_rank(g), code = OK;
    for (int m = 0; m < MAILBOX_PIECES && !code; m++) {
        fill(x, me, 0, m, 4);
        code = begin(g, 0, (me + 1) % n, 0, x, 4, NULL);
    }
    for (int m = 0; m < MAILBOX_PIECES && !code; m++) {
        code = begin(g, 1, (me + n - 1) % n, 0, x, 4, NULL);
        if (!code) code = check(x, (me + n - 1) % n, 0, m, 4);
    }
    return code;
}

/* Receives of both kinds under way at once: whichever takes the first message, the other's pieces
 * must not be taken before it is through, or the sender writes over what still lies there. */
static int both_kinds(struct group *g, size_t count) {
    enum { ROUNDS = 50 };
    int me = group_rank(g), code = OK;
    float *x[2] = {calloc(count, sizeof **x), calloc(count, sizeof **x)};
    for (int m = 0; me == 1 && m < 2 * ROUNDS && !code; m++) {
        fill(x[0], 1, 0, m, count);
        code = begin(g, 0, 0, 0, x[0], count, NULL);
    }
    for (int round = 0; me == 0 && round < ROUNDS && !code; round++) {
        struct work *work = NULL;
        code = begin(g, 1, ANY_SOURCE, 0, x[0], count, &work);
        if (!code) code = begin(g, 1, 1, 0, x[1], count, NULL);
        if (!code) code = work_wait(work);
        int swapped = x[1][0] < x[0][0];
        for (int k = 0; k < 2 && !code; k++)
            code = check(x[k ^ swapped], 1, 0, 2 * round + k, count);
        work_free(work);
    }
    free(x[0]);
    free(x[1]);
    return code;
}

static int both_kinds_entry(void *context) {
    static const struct group_sizes wide = {.window = 4096, .half = 2048, .mailbox = 1 << 18};
    struct group *g;
    (void)context;
    int code = group_open_sized(&g, 30, &wide);
    if (!code) code = both_kinds(g, 3 * (wide.mailbox / MAILBOX_PIECES / sizeof(float)));
    return end_rank(g, NULL, code);
}

/* A collective does not wait for unfinished messages. */
static int beside(struct group *g) {
    int me = group_rank(g);
    float *x = calloc(20000, sizeof *x);
    struct work *send = NULL;
    struct group_call barrier = {.what = COLLECTIVE_BARRIER};
    int code = me == 0 ? begin(g, 0, 1, 0, x, 20000, &send) : OK;
    if (!code) code = group_run(g, &barrier, NULL);
    if (!code && send && work_done(send)) code = fail(ERR_CHECK, "a long message went nowhere");
    if (!code) code = group_run(g, &barrier, NULL); /* only then it is received */
    if (!code && me == 1) code = begin(g, 1, 0, 0, x, 20000, NULL);
    code = end(send, code);
    free(x);
    return code;
}

/* Receives that were begun take their messages although nobody waits for them: more messages than
 * the mailbox holds are sent before the first wait. They end in the order in which they began. */
static int begun_before(struct group *g) {
    enum { MESSAGES = MAILBOX_PIECES + 3 };
    int me = group_rank(g), code = OK;
    struct group_call barrier = {.what = COLLECTIVE_BARRIER};
    float in[MESSAGES][4] = {{0}}, out[4];
    struct work *work[MESSAGES] = {0}, *last = NULL;
    for (int m = 0; me == 1 && m < MESSAGES && !code; m++)
        code = begin(g, 1, 0, 0, in[m], 4, &work[m]);
    for (int m = 0; me == 0 && m < MESSAGES && !code; m++) {
        fill(out, 0, 0, m, 4);
        code = begin(g, 0, 1, 0, out, 4, NULL);
    }
    if (!code) code = group_run(g, &barrier, NULL);
    for (int m = MESSAGES - 1; me == 1 && m >= 0 && !code; m--) {
        code = work_wait(work[m]);
        if (!code) code = check(in[m], 0, 0, m, 4);
    }
    /* Both end for a caller that only polls. */
    if (!code) code = group_run(g, &barrier, NULL);
    if (!code) code = begin(g, me, 1 - me, 0, me ? in[0] : out, 4, &last);
    while (!code && !work_done(last))
        usleep(1000);
    if (!code && me == 1) code = check(in[0], 0, 0, MESSAGES - 1, 4);
    work_free(last);
    for (int m = 0; m < MESSAGES; m++)
        work_free(work[m]);
    return code;
}

static int tiny_entry(void *context) {
    int (*const *run)(struct group * g) = context;
    struct group *g;
    int code = group_open_sized(&g, 30, &tiny);
    for (int round = 0; round < 20 && !code; round++)
        code = (*run)(g);
    return end_rank(g, NULL, code);
}

Test(mailbox, receives_go_on_while_nobody_waits, .timeout = 60) {
    run_well(2, tiny_entry, &(int (*)(struct group *)){begun_before});
}

static void *wait_there(void *work) {
    return (void *)(intptr_t)work_wait(work);
}

/* A receive is waited for in another thread, and takes the message before that of the receive which
 * begins meanwhile. */
static int waited_elsewhere(struct group *g) {
    enum { SHORT = 4, LONG = 2000, ROUNDS = 15 };
    int me = group_rank(g), code = OK;
    float *x = calloc(LONG, sizeof *x), y[SHORT] = {0};
    for (int round = 0; round < ROUNDS && !code; round++) {
        struct work *first = NULL;
        pthread_t thread;
        void *ended = NULL;
        if (me == 0) {
            code = begin(g, 0, 1, 0, y, SHORT, NULL);
            if (!code) code = begin(g, 0, 1, 0, x, LONG, NULL);
            continue;
        }
        CHECK_GOTO(begin(g, 1, 0, 0, y, SHORT, &first), code, out);
        int error = pthread_create(&thread, NULL, wait_there, first);
        code = error ? fail(ERR_FAILED, "no thread") : begin(g, 1, 0, 0, x, LONG, NULL);
        if (!error) pthread_join(thread, &ended);
        if (!code) code = (int)(intptr_t)ended;
        work_free(first);
    }
out:
    free(x);
    return code;
}

Test(mailbox, receives_keep_their_order_where_another_thread_waits, .timeout = 60) {
    run_well(2, tiny_entry, &(int (*)(struct group *)){waited_elsewhere});
}

Test(mailbox, receives_of_both_kinds_take_turns, .timeout = 60) {
    run_well(2, both_kinds_entry, NULL);
}

/* ---- tags ---- */

/* Rank 0 waits for tag 5 when tag 1 comes, without which rank 1 does not send tag 5. */
static int question_and_answer(struct group *g) {
    struct work *work = NULL;
    float x = 1, y = 2, z = 3;
    int code = OK;
    if (group_rank(g) == 1) {
        code = begin(g, 0, 0, 1, &x, 1, NULL);
        if (!code) code = begin(g, 1, 0, 1, &y, 1, NULL);
        if (!code) code = begin(g, 0, 0, 5, &y, 1, NULL);
    } else if (group_rank(g) == 0) {
        code = begin(g, 1, 1, 5, &y, 1, &work);
        if (!code) code = begin(g, 1, 1, 1, &x, 1, NULL);
        if (!code) code = begin(g, 0, 1, 1, &z, 1, NULL);
        if (!code) code = work_wait(work);
        if (!code && (x != 1 || y != 3)) code = fail(ERR_CHECK, "%g, %g", (double)x, (double)y);
        work_free(work);
    }
    return code;
}

/* Rank 0 receives all of tag 1 before any of tag 0, from any rank. */
static int from_anybody(struct group *g) {
    int code = OK, rank = group_rank(g), n = group_size(g), next[2][MOST] = {{0}};
    float x[300];
    for (int m = 0; m < EACH && rank && !code; m++)
        for (int tag = 0; tag < 2 && !code; tag++) {
            struct work *work = NULL;
            fill(x, rank, tag, m, 300);
            code = begin(g, 0, 0, tag, x, 300, &work);
            code = end(work, code);
        }
    for (int tag = 1; tag >= 0 && !rank; tag--)
        for (int m = 0; m < EACH * (n - 1) && !code; m++) {
            struct work *work = NULL;
            code = begin(g, 1, ANY_SOURCE, tag, x, 300, &work);
            if (!code) code = work_wait(work);
            int from = code ? 0 : work_source(work);
            if (!code && (from < 1 || from >= n)) code = fail(ERR_CHECK, "source %d", from);
            if (!code) code = check(x, from, tag, next[tag][from]++, 300);
            work_free(work);
        }
    return code;
}

/* ---- at random: all ranks send to all, and receive in another order ---- */

struct letter {
    int tag;
    size_t count;
};

/* The message of rank a to rank b: the same on both. */
static void draw(int a, int b, int round, struct letter letters[EACH]) {
    struct rng rng;
    rng_seed(&rng, (uint64_t)(round * 64 + a * 8 + b));
    for (int m = 0; m < EACH; m++)
        letters[m] = (struct letter){(int)(rng_u32(&rng) % TAGS), rng_u32(&rng) % 700};
}

static int receive_all(struct group *g, int from, int round, int begun) {
    struct letter letters[EACH];
    struct work *works[EACH] = {0};
    float *x = calloc(EACH * 700, sizeof *x);
    int code = OK, first = round % TAGS;
    draw(from, group_rank(g), round, letters);
    for (int t = 0; t < TAGS; t++) /* tag by tag */
        for (int m = 0; m < EACH && !code; m++)
            if (letters[m].tag == (first + t) % TAGS)
                code = begin(g, 1, from, letters[m].tag, x + m * 700, letters[m].count,
                             begun ? &works[m] : NULL);
    for (int m = 0; m < EACH; m++) {
        code = end(works[m], code);
        if (!code) code = check(x + m * 700, from, letters[m].tag, m, letters[m].count);
    }
    free(x);
    return code;
}

static int at_random(struct group *g, int round) {
    int n = group_size(g), me = group_rank(g), code = OK, count = 0;
    struct work *sends[MOST * EACH] = {0};
    float *x = calloc(MOST * EACH * 700, sizeof *x);
    for (int k = 1; k < n; k++) {
        struct letter letters[EACH];
        draw(me, (me + k) % n, round, letters);
        for (int m = 0; m < EACH && !code; m++, count++) {
            fill(x + count * 700, me, letters[m].tag, m, letters[m].count);
            code = begin(g, 0, (me + k) % n, letters[m].tag, x + count * 700, letters[m].count,
                         &sends[count]);
        }
    }
    for (int k = 1; k < n && !code; k++)
        code = receive_all(g, (me + k) % n, round, round % 2);
    for (int i = 0; i < count; i++) {
        code = end(sends[i], code);
    }
    free(x);
    return code;
}

static int all_entry(void *context) {
    static const size_t counts[] = {0, 1, 63, 64, 65, 255, 256, 257, 5000, 70000};
    struct group *g;
    struct group_call barrier = {.what = COLLECTIVE_BARRIER};
    (void)context;
    int code = group_open_sized(&g, 30, &tiny);
    for (int m = 0; m < 10 && !code; m++)
        code = exchange(g, m, counts[m]);
    if (!code) code = eager(g);
    if (!code) code = beside(g);
    if (!code) code = exchange(g, 11, 129);
    if (!code) code = question_and_answer(g);
    if (!code) code = from_anybody(g);
    if (!code) code = group_run(g, &barrier, NULL); /* else a fast rank's long ones arrive early */
    for (int round = 0; round < (getenv("DUET_TEST_LONG") ? 500 : 10) && !code; round++)
        code = at_random(g, round);
    return end_rank(g, NULL, code);
}

Test(mailbox, messages_arrive_and_find_their_receives, .timeout = 120) {
    run_well(2, all_entry, NULL);
    run_well(MOST, all_entry, NULL);
}

/* ---- messages on errors ---- */

struct fault {
    struct page *page;
    int kind;
};

static int faulty_entry(void *context) {
    const struct fault *f = context;
    struct group *g;
    float x[4] = {0};
    int code = group_open(&g, 0.5), rank = code ? 0 : group_rank(g);
    if (!code && begin(g, 0, 1 - rank, -1, x, 1, NULL) != ERR_USAGE)
        code = fail(ERR_CHECK, "a negative tag");
    if (!code && f->kind == 0 && rank == 1) { /* tag 3 waits in the stash, and is too long */
        code = begin(g, 0, 0, 3, x, 4, NULL);
        if (!code) code = begin(g, 0, 0, 4, x, 1, NULL);
    }
    if (!code && f->kind == 0 && rank == 0) {
        code = begin(g, 1, 1, 4, x, 1, NULL);
        if (!code) code = begin(g, 1, 1, 3, x, 2, NULL);
    }
    if (!code && f->kind == 1) /* a tag that nobody sends; the other comes into the stash */
        code = rank ? begin(g, 0, 0, 3, x, 4, NULL) : begin(g, 1, 1, 4, x, 4, NULL);
    if (!code && f->kind == 1 && rank == 1) usleep(900000); /* this rank waits for nobody */
    return end_rank(g, f->page, code);
}

Test(mailbox, faults_are_told, .timeout = 60) {
    static const char *const texts[] = {
        "recv #2 from rank 1: it sent 4 elements of float32, and 2 of float32 are expected",
        "recv #1: no word from rank 1 after 0.5 s"};
    for (int kind = 0; kind < 2; kind++) {
        struct fault f = {share(sizeof(struct page)), kind};
        run_ranks(2, faulty_entry, &f);
        cr_assert(f.page->code[0] && strstr(f.page->text[0], texts[kind]), "%s", f.page->text[0]);
    }
}
