/* Messages: in order, of any size, both ways at once, from anybody; and what is under way beside
 * them. */
#include <pthread.h>

#include "tests/group/shared.h"

static const struct group_sizes tiny = {.window = 4096, .half = 2048, .mailbox = 1024, .slot = 256};

static int begin(struct group *g, int receive, int peer, float *x, size_t count,
                 struct work **work) {
    struct group_call call = {.what = COLLECTIVE_SEND,
                              .count = count,
                              .peer = peer,
                              .receive = receive,
                              .input = x,
                              .output = x};
    return group_run(g, &call, work);
}

static float value(int from, int message, size_t i) {
    return (float)(from * 1000 + message * 10) + (float)(i % 10) * 0.5f;
}

static int check(const float *x, int from, int message, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (x[i] != value(from, message, i))
            return fail(ERR_CHECK, "message %d from rank %d: element %zu is %g, not %g", message,
                        from, i, (double)x[i], (double)value(from, message, i));
    return OK;
}

/* Every rank begins to send every other a long message, and only then receives. */
static int exchange(struct group *g, int message, size_t count) {
    int n = group_size(g), me = group_rank(g), code = OK;
    struct work *sends[8] = {0}, *receives[8] = {0};
    float *out = malloc((count + 1) * sizeof *out), *in = malloc(8 * (count + 1) * sizeof *in);
    for (size_t i = 0; i < count; i++)
        out[i] = value(me, message, i);
    for (int k = 1; k < n && !code; k++)
        code = begin(g, 0, (me + k) % n, out, count, &sends[k]);
    for (int k = 1; k < n && !code; k++)
        code = begin(g, 1, (me + k) % n, in + (size_t)k * count, count, &receives[k]);
    for (int k = 1; k < n; k++) {
        if (receives[k] && !code) code = work_wait(receives[k]);
        if (sends[k] && !code) code = work_wait(sends[k]);
        if (!code) code = check(in + (size_t)k * count, (me + k) % n, message, count);
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
        for (size_t i = 0; i < 4; i++)
            x[i] = value(me, m, i);
        code = begin(g, 0, (me + 1) % n, x, 4, NULL);
    }
    for (int m = 0; m < MAILBOX_PIECES && !code; m++) {
        code = begin(g, 1, (me + n - 1) % n, x, 4, NULL);
        if (!code) code = check(x, (me + n - 1) % n, m, 4);
    }
    return code;
}

/* Rank 0 takes what comes, of whomever: messages of one rank keep their order. */
static int from_anybody(struct group *g, size_t count) {
    enum { EACH = 6 };
    int n = group_size(g), me = group_rank(g), code = OK, next[8] = {0};
    float *x = malloc((count + 1) * sizeof *x);
    for (int m = 0; me && m < EACH && !code; m++) {
        for (size_t i = 0; i < count; i++)
            x[i] = value(me, m, i);
        code = begin(g, 0, 0, x, count, NULL);
    }
    for (int m = 0; !me && m < EACH * (n - 1) && !code; m++) {
        struct work *work = NULL;
        code = begin(g, 1, ANY_SOURCE, x, count, &work);
        if (!code) code = work_wait(work);
        int source = work && !code ? work_source(work) : 0;
        if (!code && (source < 1 || source >= n)) code = fail(ERR_CHECK, "source %d", source);
        if (!code) code = check(x, source, next[source]++, count);
        work_free(work);
    }
    free(x);
    return code;
}

/* Receives of both kinds under way at once: whichever takes the first message, the other's pieces
 * must not be taken before it is through, or the sender writes over what still lies there. */
static int both_kinds(struct group *g, size_t count) {
    enum { ROUNDS = 50 };
    int me = group_rank(g), code = OK;
    float *x[2] = {calloc(count, sizeof **x), calloc(count, sizeof **x)};
    for (int m = 0; me == 1 && m < 2 * ROUNDS && !code; m++) {
        for (size_t i = 0; i < count; i++)
            x[0][i] = value(1, m, i);
        code = begin(g, 0, 0, x[0], count, NULL);
    }
    for (int round = 0; me == 0 && round < ROUNDS && !code; round++) {
        struct work *work = NULL;
        code = begin(g, 1, ANY_SOURCE, x[0], count, &work);
        if (!code) code = begin(g, 1, 1, x[1], count, NULL);
        if (!code) code = work_wait(work);
        int swapped = x[1][0] < x[0][0];
        for (int k = 0; k < 2 && !code; k++)
            code = check(x[k ^ swapped], 1, 2 * round + k, count);
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

/* A collective does not wait for messages that are under way. */
static int beside(struct group *g) {
    int me = group_rank(g);
    float *x = calloc(20000, sizeof *x);
    struct work *send = NULL;
    struct group_call barrier = {.what = COLLECTIVE_BARRIER};
    int code = me == 0 ? begin(g, 0, 1, x, 20000, &send) : OK;
    if (!code) code = group_run(g, &barrier, NULL);
    if (!code && send && work_done(send)) code = fail(ERR_CHECK, "a long message went nowhere");
    if (!code) code = group_run(g, &barrier, NULL); /* only then it is received */
    if (!code && me == 1) code = begin(g, 1, 0, x, 20000, NULL);
    if (!code && send) code = work_wait(send);
    if (!code && send && !work_done(send)) code = fail(ERR_CHECK, "not done");
    work_free(send);
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
        code = begin(g, 1, 0, in[m], 4, &work[m]);
    for (int m = 0; me == 0 && m < MESSAGES && !code; m++) {
        for (size_t i = 0; i < 4; i++)
            out[i] = value(0, m, i);
        code = begin(g, 0, 1, out, 4, NULL);
    }
    if (!code) code = group_run(g, &barrier, NULL);
    for (int m = MESSAGES - 1; me == 1 && m >= 0 && !code; m--) {
        code = work_wait(work[m]);
        if (!code) code = check(in[m], 0, m, 4);
    }
    /* Both end for who only asks. */
    if (!code) code = group_run(g, &barrier, NULL);
    if (!code) code = begin(g, me, 1 - me, me ? in[0] : out, 4, &last);
    while (!code && !work_done(last))
        usleep(1000);
    if (!code && me == 1) code = check(in[0], 0, MESSAGES - 1, 4);
    work_free(last);
    for (int m = 0; m < MESSAGES; m++)
        work_free(work[m]);
    return code;
}

static int begun_before_entry(void *context) {
    struct group *g;
    (void)context;
    int code = group_open_sized(&g, 30, &tiny);
    for (int round = 0; round < 20 && !code; round++)
        code = begun_before(g);
    return end_rank(g, NULL, code);
}

Test(mailbox, receives_go_on_while_nobody_waits, .timeout = 60) {
    run_well(2, begun_before_entry, NULL);
}

static void *wait_there(void *work) {
    return (void *)(intptr_t)work_wait(work);
}

/* A receive is waited for in another thread, and takes the message before that of the receive which
 * begins meanwhile. */
static int waited_elsewhere(struct group *g) {
    enum { SHORT = 4, LONG = 2000, ROUNDS = 300 };
    int me = group_rank(g), code = OK;
    float *x = calloc(LONG, sizeof *x), y[SHORT] = {0};
    for (int round = 0; round < ROUNDS && !code; round++) {
        struct work *first = NULL;
        pthread_t thread;
        void *ended = NULL;
        if (me == 0) {
            code = begin(g, 0, 1, y, SHORT, NULL);
            if (!code) code = begin(g, 0, 1, x, LONG, NULL);
            continue;
        }
        CHECK_GOTO(begin(g, 1, 0, y, SHORT, &first), code, out);
        int error = pthread_create(&thread, NULL, wait_there, first);
        code = error ? fail(ERR_FAILED, "no thread") : begin(g, 1, 0, x, LONG, NULL);
        if (!error) pthread_join(thread, &ended);
        if (!code) code = (int)(intptr_t)ended;
        work_free(first);
    }
out:
    free(x);
    return code;
}

static int waited_elsewhere_entry(void *context) {
    struct group *g;
    (void)context;
    int code = group_open_sized(&g, 30, &tiny);
    if (!code) code = waited_elsewhere(g);
    return end_rank(g, NULL, code);
}

Test(mailbox, receives_keep_their_order_where_another_thread_waits, .timeout = 60) {
    run_well(2, waited_elsewhere_entry, NULL);
}

static int mail_entry(void *context) {
    static const size_t counts[] = {0, 1, 63, 64, 65, 255, 256, 257, 5000, 70000};
    struct group *g;
    (void)context;
    int code = group_open_sized(&g, 30, &tiny);
    for (int m = 0; m < 10 && !code; m++)
        code = exchange(g, m, counts[m]);
    if (!code) code = eager(g);
    struct group_call barrier = {.what = COLLECTIVE_BARRIER};
    if (!code) code = from_anybody(g, 3);
    if (!code) code = group_run(g, &barrier, NULL); /* else a fast rank's long ones come early */
    if (!code) code = from_anybody(g, 700);
    if (!code) code = beside(g);
    if (!code) code = exchange(g, 11, 129);
    return end_rank(g, NULL, code);
}

Test(mailbox, messages_arrive, .timeout = 60) {
    run_well(2, mail_entry, NULL);
    run_well(4, mail_entry, NULL);
}

Test(mailbox, receives_of_both_kinds_take_turns, .timeout = 60) {
    run_well(2, both_kinds_entry, NULL);
}
