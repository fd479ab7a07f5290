/* The protocol of references over all orders of its messages, for three workers: the owner O, the
 * worker A that has made the object, and C, to which it is passed on. Messages from one worker to
 * another keep their order, all others come in any; the calls that carry references are taken at
 * any time. In every state that can be reached:
 *
 *     an object that anybody has, or that is on its way in a call, is there
 *     once nobody has it any more and all messages have come, O has no object
 *
 * A state is written down as bytes, and each is looked at once. */
#include "rpc/lifetime.h"
#include "tests/harness/harness.h"

enum { O, A, C, WORKERS, OBJECT = 77, MOST_MESSAGES = 16, MOST_FORKS = 8 };

/* On its way: a message of the protocol, or a call that carries a reference (kind CALL). */
enum { CALL = LIFE_KINDS };
struct message {
    struct life_message m;
    int from, to;
};

struct state {
    struct life life[WORKERS];
    struct message message[MOST_MESSAGES];
    int count;
    uint64_t fork[WORKERS][MOST_FORKS]; /* that the program of a worker has; at O: 0 is one */
    int has[WORKERS];
    int shares[WORKERS]; /* that a worker may still make */
    int freed;
};

static struct state *now; /* where the emitted messages go */

static void emit(void *context, int to, const struct life_message *m) {
    int from = (int)(intptr_t)context;
    cr_assert(now->count < MOST_MESSAGES);
    now->message[now->count++] = (struct message){*m, from, to};
}

static void freed(void *context, uint64_t rref) {
    cr_assert_eq((int)(intptr_t)context, O);
    cr_assert_eq(rref, OBJECT);
    cr_assert_eq(now->freed, 0, "freed twice");
    now->freed = 1;
}

#define COPY(to, from, list)                                                               \
    do {                                                                                   \
        (to).list.room = (from).list.count;                                                \
        (to).list.item = malloc((size_t)(from).list.count * sizeof *(from).list.item + 1); \
        if ((from).list.count)                                                             \
            memcpy((to).list.item, (from).list.item,                                       \
                   (size_t)(from).list.count * sizeof *(from).list.item);                  \
    } while (0)

static struct state copy_of(const struct state *s) {
    struct state t = *s;
    for (int w = 0; w < WORKERS; w++) {
        COPY(t.life[w], s->life[w], users);
        COPY(t.life[w], s->life[w], children);
        COPY(t.life[w], s->life[w], forks);
        COPY(t.life[w], s->life[w], owned);
    }
    return t;
}

static void free_state(struct state *s) {
    for (int w = 0; w < WORKERS; w++)
        life_close(&s->life[w]);
}

/* ---- states that were seen ---- */

enum { SEEN = 1 << 22 };
static uint64_t (*seen)[2];
static int seen_count;

static uint64_t mix(uint64_t h, uint64_t v) {
    h = (h ^ v) * 0xff51afd7ed558ccdu;
    return h ^ h >> 29;
}

/* The messages of the protocol that come before message i, from the same worker to the same. */
static int before(const struct state *s, int i) {
    int n = 0;
    for (int j = 0; j < i && s->message[i].m.kind != CALL; j++)
        n += s->message[j].m.kind != CALL && s->message[j].from == s->message[i].from &&
             s->message[j].to == s->message[i].to;
    return n;
}

/* Lists are sets: the order of their items makes no difference, so the items' sums are taken. */
static void summary(const struct state *s, uint64_t out[2]) {
    for (int k = 0; k < 2; k++) {
        uint64_t h = (uint64_t)k + 1, sum;
#define ITEMS(list, ...)                                       \
    do {                                                       \
        sum = 0;                                               \
        for (int i = 0; i < (list).count; i++) {               \
            uint64_t f[] = {__VA_ARGS__}, g = (uint64_t)k + 7; \
            for (size_t j = 0; j < sizeof f / sizeof *f; j++)  \
                g = mix(g, f[j]);                              \
            sum += g;                                          \
        }                                                      \
        h = mix(h, sum);                                       \
    } while (0)
#define I(list, field) (uint64_t)(list).item[i].field
        for (int w = 0; w < WORKERS; w++) {
            const struct life *l = &s->life[w];
            ITEMS(l->users, I(l->users, fork), I(l->users, confirmed), I(l->users, held),
                  I(l->users, children));
            ITEMS(l->children, I(l->children, fork));
            ITEMS(l->forks, I(l->forks, fork));
            ITEMS(l->owned, I(l->owned, held), I(l->owned, forks));
            h = mix(h, (uint64_t)s->has[w] << 8 | (uint64_t)s->shares[w]);
        }
        sum = 0;
        for (int i = 0; i < s->count; i++) {
            const struct message *m = &s->message[i];
            uint64_t g = mix(mix((uint64_t)k + 3, m->m.kind), m->m.fork);
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
        needed += s->has[w];
    for (int i = 0; i < s->count; i++)
        needed += s->message[i].m.kind == CALL;
    cr_assert(!needed || !s->freed, "the object is gone, and %d still have it", needed);
}

static void check_end(const struct state *s) {
    for (int w = 0; w < WORKERS; w++) {
        cr_assert_eq(s->life[w].users.count, 0, "worker %d keeps a fork", w);
        cr_assert_eq(s->life[w].children.count + s->life[w].forks.count, 0);
    }
    cr_assert(s->freed && s->life[O].owned.count == 0, "the object is never freed");
}

/* ---- steps ---- */

static void walk(struct state *s);

/* Takes message i and gives it to its worker. */
static void deliver(const struct state *s, int i) {
    struct state t = copy_of(s);
    struct message m = t.message[i];
    now = &t;
    memmove(&t.message[i], &t.message[i + 1], (size_t)(--t.count - i) * sizeof m);
    if (m.m.kind == CALL) {
        life_receive(&t.life[m.to], OBJECT, m.m.fork, O, m.from);
        t.fork[m.to][t.has[m.to]++] = m.to == O ? 0 : m.m.fork;
    } else {
        life_deliver(&t.life[m.to], m.from, &m.m);
    }
    walk(&t);
    free_state(&t);
}

static void release(const struct state *s, int w) {
    struct state t = copy_of(s);
    now = &t;
    uint64_t fork = t.fork[w][--t.has[w]];
    if (w == O)
        life_release_object(&t.life[O], OBJECT);
    else
        life_release(&t.life[w], fork);
    walk(&t);
    free_state(&t);
}

/* Worker w passes its newest reference on, in a call. */
static void share(const struct state *s, int w, int to) {
    uint64_t fork = s->fork[w][s->has[w] - 1];
    if (w != O && !life_confirmed(&s->life[w], fork)) return;
    struct state t = copy_of(s);
    now = &t;
    uint64_t child = (uint64_t)w << 48 | (uint64_t)(100 + t.shares[w]);
    t.shares[w]--;
    life_share(&t.life[w], OBJECT, fork, child, to);
    t.message[t.count++] = (struct message){{CALL, 0, OBJECT, child}, w, to};
    walk(&t);
    free_state(&t);
}

static void walk(struct state *s) {
    int steps = 0;
    check(s);
    if (!is_new(s)) return;
    for (int i = 0; i < s->count; i++)
        if (!before(s, i)) deliver(s, i), steps++;
    for (int w = 0; w < WORKERS; w++) {
        if (!s->has[w]) continue;
        release(s, w), steps++;
        for (int to = 0; to < WORKERS && s->shares[w]; to++)
            if (to != w) share(s, w, to);
    }
    if (!steps) check_end(s);
}

/* A has made an object at O: O knows A's fork, and A does not know yet that it does. */
static void explore(const int shares[WORKERS]) {
    struct state s = {0};
    now = &s;
    seen = calloc(SEEN, sizeof *seen);
    for (int w = 0; w < WORKERS; w++) {
        s.life[w] =
            (struct life){.self = w, .emit = emit, .free = freed, .context = (void *)(intptr_t)w};
        s.shares[w] = shares[w];
    }
    life_hold(&s.life[O], OBJECT);
    life_know(&s.life[O], OBJECT, 1, A);
    s.fork[O][s.has[O]++] = 0;
    life_create(&s.life[A], OBJECT, 1, O);
    s.fork[A][s.has[A]++] = 1;
    emit((void *)(intptr_t)O, A, &(struct life_message){LIFE_FORK_ACK, 0, OBJECT, 1});
    walk(&s);
    free_state(&s);
    cr_assert(seen_count > 50, "%d states", seen_count);
    free(seen);
    seen_count = 0;
}

Test(lifetime, holds_in_all_orders_of_messages, .timeout = 60) {
    explore((int[]){0, 1, 0}); /* A passes it on, to C or back to O */
    explore((int[]){0, 1, 1}); /* and C once more */
    explore((int[]){1, 1, 0}); /* A and O do */
    explore((int[]){1, 2, 1}); /* everybody, and A twice */
}

static int gone_freed;
static void note_freed(void *context, uint64_t rref) {
    (void)context;
    gone_freed += rref == OBJECT;
}
static void to_nobody(void *context, int to, const struct life_message *m) {
    (void)context, (void)to, (void)m;
}

/* What a dead worker had is over, and so is what waits for it. */
Test(lifetime, a_dead_worker_has_nothing) {
    struct life o = {.self = O, .emit = to_nobody, .free = note_freed}, a = o;
    a.self = A;
    life_hold(&o, OBJECT);
    life_know(&o, OBJECT, 1, A);
    life_know(&o, OBJECT, 2, C);
    life_release_object(&o, OBJECT);
    life_gone(&o, C);
    cr_assert_eq(gone_freed, 0);
    life_gone(&o, A);
    cr_assert_eq(gone_freed, 1);
    life_create(&a, OBJECT, 1, O);
    life_confirm(&a, 1);
    life_share(&a, OBJECT, 1, 2, C);
    life_release(&a, 1);
    cr_assert_eq(a.users.count, 1, "a child is on its way");
    life_gone(&a, C);
    cr_assert_eq(a.users.count, 0);
    life_create(&a, OBJECT, 3, O);
    life_gone(&a, O);
    cr_assert_eq(a.users.count, 0);
    life_close(&o), life_close(&a);
}
