/* Explores the protocol of references over all orders of its messages, for three workers: the owner
 * O, the worker A that made the object, and C, which receives a reference. Messages from one worker
 * to another keep their order, as on one socket; others arrive in any order. In every reachable
 * state:
 *
 *     an object exists if a worker or a message has a reference to it
 *     when no references are left and all messages have arrived, O has no object */
#include "rpc/lifetime.h"
#include "tests/harness/harness.h"

enum { O, A, C, WORKERS, OBJECT = 77, MOST_MESSAGES = 16, MOST_WAITING = 4 };

/* On its way: a message of the protocol, or a call that carries a reference (kind CALL). */
enum { CALL = LIFE_DROP + 1 };
struct message {
    int kind, worker, from, to;
};

/* A call that waits until the owner has confirmed its HOLD. */
struct waiting {
    int to;
    uint64_t number;
};

struct state {
    struct life life[WORKERS];
    struct life_object object; /* O's only one */
    struct message message[MOST_MESSAGES];
    struct waiting waiting[WORKERS][MOST_WAITING];
    int count, waits[WORKERS];
    int has[WORKERS];
    int shares[WORKERS]; /* that a worker may still make */
    int freed;
};

static struct state *now; /* where the emitted messages go */

static void emit(void *context, int to, const struct life_message *m) {
    cr_assert(now->count < MOST_MESSAGES);
    cr_assert_eq(m->rref, OBJECT);
    now->message[now->count++] =
        (struct message){(int)m->kind, m->worker, (int)(intptr_t)context, to};
}

static void freed(void *context, uint64_t rref, void *value) {
    (void)value;
    cr_assert_eq((int)(intptr_t)context, O);
    cr_assert_eq(rref, OBJECT);
    cr_assert_eq(now->freed, 0, "freed twice");
    now->freed = 1;
}

/* ---- states that were seen: each is visited once, and stored as a hash ---- */

enum { SEEN = 1 << 20 };
static uint64_t (*seen)[2];
static int seen_count;

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0xff51afd7ed558ccdu;
    return h ^ h >> 29;
}

/* The messages before message i, from the same worker to the same. */
static int before(const struct state *s, int i) {
    int n = 0;
    for (int j = 0; j < i; j++)
        n += s->message[j].from == s->message[i].from && s->message[j].to == s->message[i].to;
    return n;
}

/* Messages of different pairs are a set: their order makes no difference, so a sum is taken. */
static void summary(const struct state *s, uint64_t out[2]) {
    for (int k = 0; k < 2; k++) {
        uint64_t h = (uint64_t)k + 1, sum = 0;
        for (int w = 0; w < WORKERS; w++) {
            h = mix(h, (uint64_t)(s->has[w] << 8 | s->shares[w]));
            h = mix(h, (uint64_t)(s->life[O].objects ? s->object.count[w] : -1));
            h = mix(h, s->life[w].asked[O] << 8 | s->life[w].confirmed[O]);
            for (int i = 0; i < s->waits[w]; i++)
                h = mix(h, s->waiting[w][i].number << 8 | (uint64_t)s->waiting[w][i].to);
        }
        h = mix(h, (uint64_t)s->object.held);
        for (int i = 0; i < s->count; i++) {
            const struct message *m = &s->message[i];
            uint64_t g = mix(mix((uint64_t)k + 3, (uint64_t)m->kind), (uint64_t)m->worker);
            sum += mix(g, (uint64_t)((m->from * 8 + m->to) * 100 + before(s, i)));
        }
        out[k] = mix(mix(h, sum), (uint64_t)s->freed);
    }
}

static int is_new(const struct state *s) {
    uint64_t key[2];
    summary(s, key);
    uint64_t at = key[0] % SEEN;
    while (seen[at][0]) {
        if (seen[at][0] == key[0] && seen[at][1] == key[1]) return 0;
        at = (at + 1) % SEEN;
    }
    cr_assert(++seen_count < SEEN / 2, "too many states");
    memcpy(seen[at], key, sizeof key);
    return 1;
}

/* ---- what must hold ---- */

static void check(const struct state *s) {
    int needed = 0;
    for (int w = 0; w < WORKERS; w++)
        needed += s->has[w] + s->waits[w];
    for (int i = 0; i < s->count; i++)
        needed += s->message[i].kind == CALL;
    cr_assert(!needed || !s->freed, "the object is gone, and %d still have it", needed);
}

/* ---- steps ---- */

static void walk(const struct state *s);

#define STEP(s, t)                \
    struct state t = *(s);        \
    t.life[O].object = &t.object; \
    now = &t

/* Takes message i and gives it to its worker. */
static void deliver(const struct state *s, int i) {
    STEP(s, t);
    const struct message m = t.message[i];
    memmove(&t.message[i], &t.message[i + 1], (size_t)(--t.count - i) * sizeof m);
    if (m.kind == CALL) {
        t.has[m.to]++;
        if (m.to == O) life_hold(&t.life[O], OBJECT);
    } else {
        life_deliver(&t.life[m.to], m.from,
                     &(struct life_message){(enum life_kind)m.kind, m.worker, OBJECT});
    }
    walk(&t);
}

static void drop(struct state *t, int w) {
    if (w == O)
        life_release(&t->life[O], OBJECT);
    else
        life_drop(&t->life[w], O, OBJECT, w);
}

static void release(const struct state *s, int w) {
    STEP(s, t);
    t.has[w]--;
    drop(&t, w);
    walk(&t);
}

/* The call leaves, and what it held until then is released. */
static void leave(struct state *t, int w, int to) {
    t->message[t->count++] = (struct message){CALL, 0, w, to};
    drop(t, w);
}

/* Worker w passes one of its references on, in a call, and does not keep it. */
static void share(const struct state *s, int w, int to) {
    STEP(s, t);
    t.shares[w]--;
    t.has[w]--;
    if (w == O) life_count(&t.life[O], OBJECT, to);
    if (w == O || to == O)
        leave(&t, w, to);
    else
        t.waiting[w][t.waits[w]++] = (struct waiting){to, life_ask(&t.life[w], O, OBJECT, to)};
    walk(&t);
}

/* The call leaves; or, if it took too long, it does not, and what was asked for is taken back. */
static void end_waiting(const struct state *s, int w, int i, int late) {
    STEP(s, t);
    const struct waiting x = t.waiting[w][i];
    t.waiting[w][i] = t.waiting[w][--t.waits[w]];
    if (late) life_drop(&t.life[w], O, OBJECT, x.to);
    if (late)
        drop(&t, w);
    else
        leave(&t, w, x.to);
    walk(&t);
}

static void walk(const struct state *s) {
    int steps = 0;
    check(s);
    if (!is_new(s)) return;
    for (int i = 0; i < s->count; i++)
        if (!before(s, i)) deliver(s, i), steps++;
    for (int w = 0; w < WORKERS; w++) {
        for (int i = 0; i < s->waits[w]; i++) {
            end_waiting(s, w, i, 1), steps++;
            if (life_confirmed(&s->life[w], O, s->waiting[w][i].number))
                end_waiting(s, w, i, 0), steps++;
        }
        if (!s->has[w]) continue;
        release(s, w), steps++;
        for (int to = 0; to < WORKERS && s->shares[w]; to++)
            if (to != w) share(s, w, to);
    }
    if (!steps) cr_assert(s->freed && !s->life[O].objects, "the object is never freed");
}

/* A has made an object at O, which counts A's references. */
static void explore(int at_a, const int shares[WORKERS]) {
    struct state s = {0};
    now = &s;
    seen = calloc(SEEN, sizeof *seen);
    for (int w = 0; w < WORKERS; w++) {
        s.life[w] = (struct life){
            .self = w, .room = 1, .emit = emit, .free = freed, .context = (void *)(intptr_t)w};
        s.shares[w] = shares[w];
    }
    s.life[O].object = &s.object;
    life_hold(&s.life[O], OBJECT);
    s.has[O] = 1;
    s.has[A] = at_a;
    for (int i = 0; i < at_a; i++)
        life_count(&s.life[O], OBJECT, A);
    walk(&s);
    cr_assert(seen_count > 30, "%d states", seen_count);
    free(seen);
    seen_count = 0;
}

Test(lifetime, holds_in_all_orders_of_messages, .timeout = 60) {
    explore(1, (int[]){0, 1, 0}); /* A passes it on, to C or back to O */
    explore(1, (int[]){0, 1, 1}); /* and C once more */
    explore(1, (int[]){1, 1, 0}); /* A and O do */
    explore(2, (int[]){1, 2, 1}); /* everybody, and A twice */
}

/* A dead worker's references are gone, nobody counts for it again, and others' objects stay. */
Test(lifetime, a_dead_worker_has_nothing) {
    struct state s = {0};
    struct life o = {.self = O, .emit = emit, .free = freed, .context = (void *)(intptr_t)O};
    now = &s;
    life_hold(&o, OBJECT);
    life_count(&o, OBJECT, A);
    life_count(&o, OBJECT, C);
    life_release(&o, OBJECT);
    life_gone(&o, C);
    life_deliver(&o, A, &(struct life_message){LIFE_HOLD, C, OBJECT});
    life_deliver(&o, C, &(struct life_message){LIFE_DROP, C, OBJECT});
    cr_assert_eq(s.freed, 0);
    life_gone(&o, A);
    cr_assert_eq(s.freed, 1);
    cr_assert_eq(o.objects, 0);
    life_close(&o);
}
