/* A worker that has proved itself and lies: whatever it says, the others crash nowhere, leak
 * nothing, and go on serving each other. DUET_LIES=N draws N frames, DUET_SEED=S others. */
#include "rpc/agent.h"
#include "tests/rpc/functions.h"

static int done; /* at w0: w2 needs it no more */

FUNCTION(set_done) {
    (void)call;
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    return DUET_OK;
}

static const struct duet_rpc_function functions[] = {{"done", set_done, NULL, NULL}};

/* ---- the liar ---- */

static uint64_t state;

static uint64_t draw(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

static uint64_t number(void) {
    static const uint64_t interesting[] = {0, 0,  0,  1,     2,        3,
                                           5, 63, 64, 65535, 1u << 31, UINT64_MAX};
    uint64_t owner = draw(6) ? draw(3) : draw(65536);
    if (draw(3)) return interesting[draw(sizeof interesting / sizeof *interesting)];
    return owner << ID_BITS | draw(40);
}

static void put_value(struct wire_out *w, int depth) {
    const int n = (int)draw(4);
    unsigned type = (unsigned)draw(depth < 3 ? 10 : 7);
    float *room;
    wire_put_u8(w, type);
    switch (type) {
    case DUET_RPC_INT:
    case DUET_RPC_NUMBER: wire_put_u64(w, number()); break;
    case DUET_RPC_TEXT: wire_put_text(w, draw(2) ? "sgd" : "\033[31m"); break;
    case DUET_RPC_BYTES:
        wire_put_u64(w, draw(4) ? 72 : number());
        for (int i = 0; i < 9; i++)
            wire_put_u64(w, number());
        break;
    case DUET_RPC_TENSOR: {
        const struct wire_tensor t = {
            (uint8_t)draw(8), draw(9) ? 1 : (uint8_t)draw(256), (uint8_t)draw(20), {n}};
        wire_put(w, &t, sizeof t);
        if ((room = wire_put_room(w, (size_t)n * 8))) memset(room, 1, (size_t)n * 8);
        break;
    }
    case DUET_RPC_RREF: {
        struct wire_rref r = {number(), (uint32_t)(draw(5) ? draw(3) : number()), ""};
        strcpy(r.type, draw(2) ? "Thing" : "duet.Optimizer");
        if (!draw(20)) memset(r.type, 'x', sizeof r.type);
        wire_put(w, &r, sizeof r);
        break;
    }
    case DUET_RPC_LIST:
        wire_put_u32(w, (uint32_t)n);
        for (int i = 0; i < n; i++)
            put_value(w, depth + 1);
        break;
    default: break;
    }
}

static void draw_call(struct message *m) {
    static const char *const names[] = {
        "echo",          "Thing",          "Thing.add",          "nosuch",
        "duet.to_here",  "duet.wait",      "duet.leave",         "duet.nosuch",
        "duet.backward", "duet.Optimizer", "duet.Optimizer.step"};
    const uint64_t mine = (uint64_t)1 << ID_BITS;
    m->text = names[draw(sizeof names / sizeof *names)];
    m->timeout = draw(2) ? 0 : draw(3) ? draw(1000000000) : number();
    m->self = draw(3) ? 0 : mine | draw(10);
    m->context = draw(3) ? 0 : number();
    m->pass = draw(5) ? 0 : draw(3) ? m->call : mine | draw(40);
    m->path.depth = (uint32_t)(draw(4) ? 0 : draw(MOST_PATH + 1));
    for (uint32_t i = 0; i < m->path.depth; i++)
        m->path.step[i] = (uint32_t)number();
    m->rref = draw(3) ? 0 : draw(9) ? mine | draw(10) : number();
}

static void lie(duet_rpc *rpc, int to) {
    static const enum message_kind kinds[] = {
        MESSAGE_CALL,   MESSAGE_CALL, MESSAGE_CALL, MESSAGE_CALL, MESSAGE_CALL,
        MESSAGE_ANSWER, MESSAGE_HOLD, MESSAGE_HELD, MESSAGE_DROP, MESSAGE_PING,
        MESSAGE_HOLD,   MESSAGE_DROP, MESSAGE_LEAVE};
    struct wire_out w = {0};
    struct message m = {.kind = kinds[draw(sizeof kinds / sizeof *kinds)],
                        .code = draw(3) ? 0 : number(),
                        .rref = number(),
                        .worker = draw(3) ? draw(3) : number(),
                        .context = number(),
                        .text = draw(2) ? "A" : "\033[31m"};
    m.call = draw(2) ? (uint64_t)1 << ID_BITS | draw(40) : draw(3) << ID_BITS | draw(40);
    if (m.kind == MESSAGE_CALL) draw_call(&m);
    message_begin(&w, &m);
    if (m.kind == MESSAGE_ANSWER) put_value(&w, 0);
    if (m.kind == MESSAGE_CALL) {
        const int count = (int)draw(4);
        wire_put_u8(&w, DUET_RPC_LIST);
        wire_put_u32(&w, (uint32_t)(draw(20) ? (uint64_t)count : number()));
        for (int i = 0; i < count; i++)
            put_value(&w, 0);
    }
    const size_t head = sizeof(struct message_header), body = w.bytes - head;
    if (body && !draw(8)) w.data[head + draw(body)] = (uint8_t)draw(256);
    if (body && !draw(12)) w.bytes = head + draw(body);
    pthread_mutex_lock(&rpc->lock);
    send_frame(rpc, to, message_end(&w));
    pthread_mutex_unlock(&rpc->lock);
}

static int lies(const char *variable, int otherwise) {
    const char *text = getenv(variable);
    return text ? atoi(text) : otherwise;
}

static int liar(void) {
    duet_rpc *rpc;
    GOOD(duet_rpc_init(&rpc, "w1", 1, 3, NULL));
    state = 88172645463325252u + (uint64_t)lies("DUET_SEED", 1);
    for (int i = lies("DUET_LIES", 300); i > 0; i--) {
        lie(rpc, draw(2) ? 0 : 2);
        if (i % 50 == 0) usleep(2000); /* so that some of it runs between */
    }
    GOOD(duet_rpc_shutdown(&rpc, 0, 0));
    return 0;
}

/* ---- the others ---- */

/* Until the liar has left, whatever it answers; then the honest ones still serve each other. */
static void honest(struct worker *w) {
    const char *other = w->rank ? "w0" : "w2";
    struct duet_rpc_value got;
    int code = DUET_OK;
    while (code != DUET_PEER) {
        code = duet_rpc_sync(w->rpc, "w1", "f", DUET_NO_ARGS, -1, &got);
        duet_rpc_value_free(&got);
    }
    MUST(strstr(duet_error(), "worker 'w1' has left"));
    GOOD(duet_rpc_sync(w->rpc, other, "echo", DUET_ARGS(duet_rpc_int(7)), 0, &got));
    MUST(got.count == 1 && got.items[0].integer == 7);
    duet_rpc_value_free(&got);
    if (w->rank == 2) GOOD(duet_rpc_sync(w->rpc, "w0", "done", DUET_NO_ARGS, 0, NULL));
    while (w->rank == 0 && !__atomic_load_n(&done, __ATOMIC_ACQUIRE))
        usleep(1000);
    for (code = DUET_OK; w->rank == 2 && code != DUET_PEER;)
        code = duet_rpc_sync(w->rpc, "w0", "g", DUET_NO_ARGS, -1, NULL);
    GOOD(duet_rpc_shutdown(&w->rpc, 0, 0));
#ifdef __SANITIZE_ADDRESS__
    MUST(!__lsan_do_recoverable_leak_check());
#endif
}

Test(lies, of_a_worker_harm_nobody, .timeout = 120) {
    pid_t p[3];
    HAVE(functions);
    set_secret();
    for (int r = 0; r < 3; r++)
        if (r != 1) p[r] = start_one(r, 3, honest);
    if (!(p[1] = fork())) _exit(liar());
    for (int r = 0; r < 3; r++)
        cr_expect_eq(status_of(p[r]), 0, "worker %d", r);
}
