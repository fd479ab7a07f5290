/* Messages between workers, from the frame's header to the answer: a worker of two takes frames
 * from a peer that has proved itself and may send anything. Calls run or are refused, answers end a
 * waiting call, references arrive, are passed on and are released. Nothing remains when the peer is
 * gone. */
#include "rpc/autograd.h"
#include "tests/fuzz/fuzz.h"

static int echo(duet_rpc_call *call, void *context) {
    (void)context;
    return duet_rpc_return(call, duet_rpc_list(duet_rpc_arg(call, 0), duet_rpc_arg_count(call)));
}

static int new_object(duet_rpc_call *call, void *context) {
    (void)context;
    return duet_rpc_return_object(call, malloc(1), free);
}

static int get(duet_rpc_call *call, void *context) {
    (void)context;
    MUST(duet_rpc_self(call)); /* a method has its object */
    return duet_rpc_return(call, duet_rpc_rref(duet_rpc_arg_rref(call, 0)));
}

/* One worker for all inputs, which believes that there is another. */
static duet_rpc *worker(void) {
    static duet_rpc *rpc;
    static const struct duet_rpc_function functions[] = {
        {"echo", echo, NULL, NULL}, {"Obj", new_object, NULL, NULL}, {"Obj.get", get, NULL, NULL}};
    if (rpc) return rpc;
    duet_device *device;
    MUST(!duet_device_open(&device, "cpu", 0, 1 << 24));
    const struct duet_rpc_options options = {
        .functions = functions, .function_count = 3, .device = device};
    MUST(!duet_rpc_init(&rpc, "w0", 0, 1, &options));
    duet_rpc_give_device(rpc, device);
    rpc->world = 2;
    strcpy(rpc->peers[1].name, "w1");
    rpc->peers[1].ended = 1; /* messages to it are dropped */
    return rpc;
}

static void check_openings(const uint8_t *data, size_t size) {
    struct opening opening;
    struct hello hello, own = {.world = 2};
    if (size >= sizeof opening) {
        memcpy(&opening, data, sizeof opening);
        int code = opening_check(&opening);
        if (code) check_error(code);
    }
    if (size >= sizeof hello) {
        memcpy(&hello, data, sizeof hello);
        int code = hello_check(&hello, &own);
        if (code) check_error(code);
        MUST(code || (hello.rank >= 0 && hello.rank < 2 && strlen(hello.address) < HELLO_ADDRESS));
    }
}

/* The messages in the input: headers, each followed by its bytes. An answer whose length is odd
 * is one to `call`. */
static void say_all(duet_rpc *rpc, const uint8_t *data, size_t size, uint64_t call) {
    struct message_header h;
    while (size >= sizeof h) {
        memcpy(&h, data, sizeof h);
        if (!header_is_good(&h)) return;
        if (h.bytes > size) h.bytes = size;
        struct frame *f = calloc(1, sizeof *f);
        MUST(f && (f->data = malloc(h.bytes)));
        f->bytes = h.bytes;
        memcpy(f->data, data, h.bytes);
        memcpy(f->data, &h, sizeof h);
        if (h.kind == MESSAGE_ANSWER && h.bytes % 2 && h.bytes >= sizeof h + sizeof call)
            memcpy(f->data + sizeof h, &call, sizeof call);
        data += h.bytes, size -= h.bytes;
        pthread_mutex_lock(&rpc->lock);
        take_frame(&rpc->peers[1], f);
        pthread_mutex_unlock(&rpc->lock);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    duet_rpc *rpc = worker();
    struct duet_rpc_value got;
    duet_future *waits;
    check_openings(data, size);
    rpc->peers[1].state = PEER_HERE;
    rpc->life.gone = 0;
    MUST(!duet_rpc_async(&waits, rpc, "w1", "f", DUET_NO_ARGS, -1));
    say_all(rpc, data, size, waits->id);
    pthread_mutex_lock(&rpc->lock);
    take_frame(&rpc->peers[1], NULL); /* it has ended */
    pthread_mutex_unlock(&rpc->lock);
    int code = duet_future_wait(waits, &got);
    if (code) check_error(code);
    duet_rpc_value_free(&got);
    duet_future_free(waits);
    pthread_mutex_lock(&rpc->lock);
    for (int i = 0; rpc->serving || (rpc->kept && i < 500); i++) /* values end in the pool */
        wait_changed(rpc, now_ns() + 10000000);
    rpc->came = 0;
    MUST(!rpc->pending && !rpc->kept);
    pthread_mutex_unlock(&rpc->lock);
    return 0;
}
