/* Messages: what a frame of a peer says. This is the one place where what came over a link is
 * checked: message_read looks at every number, name and length before anything uses it, so all that
 * comes behind it may index by them. What depends on the state of the worker, as whether an object
 * exists, is asked of that state. A fuzzer drives it (tests/fuzz/fuzz_rpc.c). */
#ifndef RPC_MESSAGE_H
#define RPC_MESSAGE_H

#include "base/error.h"
#include "rpc/frame.h"
#include "rpc/lifetime.h"
#include "rpc/wire.h"

/* An id is worker << 48 | counter. */
enum { ID_BITS = 48, NAME_BYTES = HELLO_NAME };

/* Flags of a call. */
enum {
    CALL_REMOTE = 1, /* its result becomes the value of a reference */
    CALL_OWN = 2     /* of a function of this library: no name of the user's begins with "duet." */
};

/* The head of a call's payload. The name of the function follows, then the steps of the path, then
 * the arguments. */
struct call_head {
    uint64_t self;         /* the reference whose method it is; 0: none */
    uint64_t rref, fork;   /* CALL_REMOTE: what the result becomes */
    uint64_t context;      /* of distributed autograd; 0: none */
    uint64_t pass;         /* of duet.backward: whose; else 0 */
    uint32_t count, depth; /* arguments; steps of the path */
};

/* Where a pass of autograd stands among the calls of its context: the number of the creator's pass,
 * that of the call in it, and so on inwards. */
enum { MOST_PATH = 64 };
struct path {
    uint32_t depth, step[MOST_PATH];
};

struct message {
    struct frame *frame; /* owned; all texts point into it */
    enum frame_kind kind;
    int from;
    /* FRAME_CALL */
    struct call_head head;
    const char *function;
    struct path path;
    /* FRAME_CALL: the arguments; FRAME_ANSWER without a code: the result. Owned */
    struct wire_value *value;
    int count;
    int code;                 /* of an answer, or why a call is refused: with `text`; OK */
    char text[ERROR_BYTES];   /* of an error */
    struct life_message life; /* FRAME_LIFE */
    duet_rpc *rpc;
    /* What the worker has set aside for a call, before it runs: */
    void *context;  /* that of autograd, which it holds; NULL: none */
    uint64_t holds; /* the object of its method, which it holds; 0: none */
    uint64_t makes; /* CALL_REMOTE: the reference whose value it makes, which it holds; 0: none */
};

int id_worker(uint64_t id); /* who has made it */

/* Takes the frame, which `from` has sent to `self`, a worker of `world`. ERR_FAILED: it makes no
 * sense; then the message has its kind, and the number of its call in the frame's header, and must
 * be freed nevertheless. An answer that makes no sense is one with an error. */
int message_read(struct message *m, struct frame *frame, int from, int self, int world);
void message_free(struct message *m); /* NULL is fine; frees m */

#endif
