/* Frames: what travels between two workers. A frame is a header of 40 bytes and a payload.
 *
 *     magic | version | kind | flags | code | call | time left | bytes || payload
 *
 * All lengths are checked against limits before anything is allocated. Numbers are in the machine's
 * own byte order: a peer of another one fails at the magic of its opening. Before the first frame
 * each side sends a `struct opening`, and then a `struct hello` with the proof that it knows the
 * job's secret (proof.h); nothing else of a peer is looked at before that proof is right. */
#ifndef RPC_FRAME_H
#define RPC_FRAME_H

#include <stddef.h>
#include <stdint.h>

enum { FRAME_MAGIC = 0x43505244, HELLO_MAGIC = 0x48505244, FRAME_VERSION = 5 };

enum frame_kind {
    FRAME_CALL = 1,    /* payload: struct call_head and the arguments (rpc/message.h) */
    FRAME_ANSWER,      /* code 0: the result; else the text of the error */
    FRAME_LIFE,        /* payload: struct life_message (rpc/lifetime.h) */
    FRAME_PING,        /* "I am here" */
    FRAME_BYE,         /* the worker ends as planned */
    FRAME_CONTEXT_END, /* call: the id of a context of autograd (rpc/context.c) */
    FRAME_PLACES,      /* of rank 0: where each worker listens, PLACE_BYTES each (rendezvous.c) */
    FRAME_GIVEN_UP,    /* "you have said nothing for too long": the sender takes no more of it */
    FRAME_KINDS
};

struct frame_header {
    uint32_t magic;
    uint16_t version, kind;
    uint32_t flags;
    int32_t code;
    uint64_t call;    /* its id */
    uint64_t timeout; /* of a call: nanoseconds until its caller gives up; 0: never */
    uint64_t bytes;   /* of the payload */
};

struct frame {
    struct frame_header header;
    uint8_t *payload; /* [header.bytes], owned; NULL: none */
    struct frame *next;
    int64_t came; /* when, on the clock of base/clock.h */
};

enum { HELLO_NAME = 128, PLACE_BYTES = 64, NONCE_BYTES = 32, PROOF_BYTES = 32, MOST_WORKERS = 64 };

struct opening {
    uint32_t magic, version;
    uint8_t nonce[NONCE_BYTES]; /* drawn anew for each connection */
};

struct hello {
    int32_t rank, world;
    char name[HELLO_NAME];
    char place[PLACE_BYTES]; /* where it listens: "HOST:PORT"; "": nowhere, or all know it */
};

/* The largest payload: tensors of 2^31 - 1 doubles, and some room. */
static const uint64_t FRAME_MOST_BYTES = (uint64_t)17 << 30;

/* A frame with room for `bytes` bytes; NULL: no host memory. */
struct frame *frame_new(enum frame_kind kind, uint64_t bytes);
void frame_free(struct frame *frame); /* NULL is fine */

/* ERR_FAILED: no peer of ours sends such a header. */
int frame_check(const struct frame_header *header);

/* ERR_USAGE: the peer is no worker, or is of another version. */
int opening_check(const struct opening *opening);

/* OK: `name` may be a worker's: 1 to 127 letters, digits, "_", ":" or "-". */
int worker_name_check(const char *name);

/* ERR_USAGE: the peer was started for another world, has a rank that is not in it, or no proper
 * name. To be called once the proof behind the hello is right. */
int hello_check(const struct hello *hello, const struct hello *own);

#endif
