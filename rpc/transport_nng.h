/* The inside of the transport of NNG: links (transport_link.c, transport_send.c) and what makes
 * them, the carrier (transport_nng.c). */
#ifndef RPC_TRANSPORT_NNG_H
#define RPC_TRANSPORT_NNG_H

#include <nng/nng.h>
#include <nng/supplemental/tls/tls.h>
#include <pthread.h>

#include "rpc/proof.h"
#include "rpc/region.h"
#include "rpc/transport.h"

enum { RING_BYTES = 64 << 10, MOST_LINKS = 4 * MOST_WORKERS };

struct link {
    struct carrier *carrier;
    nng_stream *stream;
    nng_aio *receive, *send;
    pthread_t reader, writer;
    int has_reader, has_writer;
    enum proof_role role;
    void *user; /* NULL: no good hello yet */
    /* receiving: all but `looked` under `reading` */
    pthread_mutex_t reading;
    int64_t looked;  /* when another thread than the reader did so last; atomic */
    int reads, deaf; /* 1: a read is under way; nothing more is read */
    uint8_t ring[RING_BYTES];
    size_t start, end; /* what has come and was not taken: ring[start .. end) */
    int opened;        /* 1: the peer's opening has come, with this nonce */
    uint8_t peer_nonce[NONCE_BYTES];
    struct frame *incoming; /* its payload is being read straight into it */
    uint64_t got;           /* bytes of that payload */
    struct guests guests;   /* what the peer shares */
    /* sending */
    pthread_mutex_t lock;
    pthread_cond_t stuck_or_ending; /* the writer waits for it */
    int stuck, ending;              /* stuck 1: a write is under way, and the writer's to end */
    struct frame *first, *last;     /* the queue; the first ones are being written */
    size_t written;                 /* bytes of `first` that have left */
    struct { /* they leave before the queue: bytes [words_sent .. words_ready) */
        struct opening opening;
        struct hello hello;
        uint8_t proof[PROOF_BYTES];
    } first_words;
    size_t words_sent, words_ready;
    int busy, gone;
    int refused; /* 1: it ends when what is being written has left */
    int shares;  /* 1: the peer can open what is shared here; atomic */
};

struct carrier {
    struct transport_events events;
    struct transport_options options;
    struct hello own;
    struct regions regions;
    nng_tls_config *tls_client, *tls_server; /* NULL: no TLS */
    nng_stream_listener *listener;
    nng_aio *accept;
    pthread_mutex_t lock;
    struct link *links[MOST_LINKS];
    int count, closing;
    int peers; /* that have said a good hello */
};

/* ---- transport_link.c ---- */
int link_new(struct carrier *c, nng_stream *stream, enum proof_role role); /* takes the stream */
void link_free(struct link *l);                                            /* NULL is fine */
int link_look(struct link *l);
int link_is_busy(struct link *l); /* 1: something is leaving */
void link_hush(struct link *l);   /* it counts as gone, and nobody is told */

/* ---- transport_send.c ---- */
void link_gone(struct link *l); /* it has ended */
struct region *link_room(struct link *l, uint64_t bytes);
void link_send(struct link *l, struct frame *frame);
void link_write(struct link *l); /* whoever has set `busy` calls it, without the lock */
void *link_writer(void *link);   /* a thread of it */

#endif
