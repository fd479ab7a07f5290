/* Frames: what travels between two workers. A frame is a header of 64 bytes and a payload.
 *
 *     magic | version | kind | flags | code | call | time left | bytes | beside || payload
 *
 * Between workers of one machine the elements of large tensors do not travel in the payload but lie
 * beside it, in memory that both see (rpc/region.h): the header says where.
 *
 * All lengths are checked against limits before anything is allocated. Numbers are in the machine's
 * own byte order: a peer of another one fails at the magic of its opening. Before the first frame
 * each side sends a `struct opening`, and then a `struct hello` with the proof that it knows the
 * job's secret (proof.h); nothing else of a peer is looked at before that proof is right. */
#ifndef RPC_FRAME_H
#define RPC_FRAME_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum { FRAME_MAGIC = 0x43505244, HELLO_MAGIC = 0x48505244, FRAME_VERSION = 4 };

enum frame_kind {
    FRAME_CALL = 1,    /* payload: struct call_head and the arguments (rpc/serve.c) */
    FRAME_ANSWER,      /* code 0: the result; else the text of the error */
    FRAME_LIFE,        /* payload: struct life_message (rpc/lifetime.h) */
    FRAME_PING,        /* "I am here" */
    FRAME_BYE,         /* the worker ends as planned */
    FRAME_CONTEXT_END, /* call: the id of a context of autograd (rpc/context.c) */
    FRAME_PLACES,      /* of rank 0: where each worker listens, PLACE_BYTES each (rpc/meet.c) */
    FRAME_GIVEN_UP,    /* "you have said nothing for too long": the sender takes no more of it */
    FRAME_SHARES,      /* of the transport: "what you share can be opened here"; with a region:
                          "that one cannot, and is free again" */
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
    uint64_t beside;  /* bytes in the region; 0: there is none */
    uint64_t region;  /* its id, and its descriptor in the sender's process */
    int32_t fd;
    uint32_t spare; /* zero */
};

struct region;

struct frame {
    struct frame_header header;
    uint8_t *payload;            /* [header.bytes], owned; NULL: none */
    struct payload_spare *spare; /* where a large payload goes; NULL: it is freed */
    struct region *beside;       /* owned; NULL: none, or it cannot be opened */
    struct frame *next;
    int from; /* set by the receiver */
    void
        *context; /* of a call, set by the receiver: that of autograd, which it holds; NULL: none */
    uint64_t self; /* of a call, set by the receiver: the object that it holds; 0: none */
    int64_t came;  /* when, on the clock of base/clock.h */
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
    int32_t pid, door;       /* whose memory may be opened, and what to try; pid 0: none */
    uint64_t token;          /* that stands in what it shares */
};

/* The largest payload: tensors of 2^31 - 1 doubles, and some room. */
static const uint64_t FRAME_MOST_BYTES = (uint64_t)17 << 30;

/* The large payload that was freed last is kept for the next: most of the time that a large message
 * takes is the kernel's, for fresh pages. */
struct payload_spare {
    pthread_mutex_t lock;
    void *data; /* owned; NULL: none */
    size_t bytes;
};
void spare_open(struct payload_spare *spare);
void spare_close(struct payload_spare *spare);

/* malloc for a payload, which free() frees. A large one is the spare one (NULL: there is none), or
 * lies in huge pages where the system has them: fresh memory in small pages costs four times a copy
 * of it. */
void *payload_alloc(struct payload_spare *spare, uint64_t bytes);

/* A frame with room for `bytes` bytes; NULL: no host memory. */
struct frame *frame_new(enum frame_kind kind, uint64_t bytes);
struct frame *frame_new_of(struct payload_spare *spare, enum frame_kind kind, uint64_t bytes);
void frame_free(struct frame *frame); /* NULL is fine */

/* Payload and what lies beside it. */
static inline size_t frame_bytes(const struct frame *frame) {
    return frame->header.bytes + frame->header.beside;
}

/* ERR_FAILED: no peer of ours sends such a header. */
int frame_check(const struct frame_header *header);

/* ERR_USAGE: the peer is no worker, or is of another version. */
int opening_check(const struct opening *opening);

/* ERR_USAGE: the peer was started for another world, or its texts have no end. To be called once
 * the proof behind the hello is right. */
int hello_check(const struct hello *hello, const struct hello *own);

#endif
