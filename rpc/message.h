/* Messages from one worker to another:
 *
 *     bytes in total (8) | kind (8) || fields | text | value
 *
 * All kinds have the same fields; a field that a kind does not use is 0. This is the only place
 * that checks messages from a link: message_read checks every number, name and length before
 * anything uses it, so later code may index by them. Checks that depend on the worker's state, such
 * as whether an object exists, come later. A fuzzer drives it (tests/fuzz/fuzz_rpc.c). */
#ifndef RPC_MESSAGE_H
#define RPC_MESSAGE_H

#include "base/error.h"
#include "rpc/proof.h"
#include "rpc/wire.h"

/* An id is worker << 48 | counter. */
enum { ID_BITS = 48, NAME_BYTES = WIRE_NAME };

enum message_kind {
    MESSAGE_CALL = 1,
    MESSAGE_ANSWER,
    MESSAGE_LIFE,  /* for references: `code` is the kind in rpc/lifetime.h */
    MESSAGE_LEAVE, /* the worker waits until all leave */
    MESSAGE_BYE,   /* the worker ends normally, or with this error of its shutdown */
    MESSAGE_KINDS
};

struct message_header {
    uint64_t bytes; /* including the header */
    uint64_t kind;
};

/* A message as bytes: header and fields. */
struct frame {
    uint8_t *data; /* [bytes], owned */
    size_t bytes, sent;
    struct frame *next;
};

/* The position of an autograd pass among the calls of its context: the number of the creator's
 * pass, the number of the call in it, and so on inwards. */
enum { MOST_PATH = 64 };
struct path {
    uint32_t depth, step[MOST_PATH];
};

struct message {
    enum message_kind kind;
    int from;
    /* the fields, as they are sent */
    uint64_t call;    /* the id of a call, which its answer repeats */
    uint64_t code;    /* an answer's code, or the kind of LIFE or BYE */
    uint64_t self;    /* the reference whose method is called; 0: none */
    uint64_t rref;    /* LIFE: the reference concerned */
    uint64_t worker;  /* LIFE: the worker concerned */
    uint64_t context; /* the id of the context of a call; 0: none */
    uint64_t leaves;  /* CALL: 1: its pass stays, or without a context its result, and the caller
                         has a reference to that with the id of the call */
    struct path path; /* CALL: the position of its pass */
    const char *text; /* CALL: the function; ANSWER: the error */
    struct duet_rpc_value value; /* CALL: a list, the arguments; ANSWER: the result. Owned */
    /* for a received message */
    struct frame *frame; /* owned; all strings point into it */
    duet_rpc *rpc;       /* the worker that received it */
    int wrong;           /* why a call is refused; or OK */
    char why[ERROR_BYTES];
    /* reserved by the worker for a call before it runs */
    duet_autograd_context *entered; /* a context that the call holds; NULL: none */
    uint64_t holds;                 /* the object whose method it calls, held; 0: none */
    uint64_t made;                  /* the id of what it leaves, held; 0: nothing */
};

static inline int leaves_value(const struct message *m) {
    return m->leaves && !m->context;
}

static inline int id_worker(uint64_t id) { /* the worker that created it */
    return (int)(id >> ID_BITS);
}

/* Writes header and fields into w; the caller then writes the value. */
void message_begin(struct wire_out *w, const struct message *m);
/* Makes a frame from w. NULL: out of host memory, or too large (wire_error). */
struct frame *message_end(struct wire_out *w);
void frame_free(struct frame *frame); /* NULL is fine */

int header_is_good(const struct message_header *header); /* 0: no correct peer sends this */
/* Takes the frame, which `from` has sent to this worker; the references in it have arrived. Called
 * under the lock. ERR_FAILED: it is invalid; the message then has its kind, and `call` if that was
 * read, and must still be dropped. An invalid answer counts as one with an error. */
int message_read(struct message *m, struct frame *frame, duet_rpc *rpc, int from);
void message_drop(struct message *m); /* frees m; call it under the lock; NULL is fine */

#endif
