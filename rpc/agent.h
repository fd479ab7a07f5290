/* The inside of a worker, only for the files of rpc/. The contracts are in duet/rpc.h.
 *
 *     links.c         sends and receives messages       message.h  messages, checked
 *     wire.h          values as bytes                   values.c   values from and to bytes
 *     proof.h         checks who may join               pool.h     threads
 *     lifetime.h      the protocol of references        control.c  received messages
 *     agent.c         beginning and end                 rendezvous.c  how workers find each other
 *     worker.c        shared: ids, names, waits, devices
 *     refcount.c      holders of futures, references, messages
 *     owner.c         the values behind references      rref.c     references, the proxies
 *     outgoing.c      calls from here, futures          serve.c    calls to here
 *     program_calls.c  calls and waits of the program   call.c     what a function sees of its call
 *     autograd.h      backward through calls, in separate files
 *
 * Locks are taken in this order: a device, then the worker's `lock`, then the pool's.
 * Threads: the program's; the pool's, which run functions; and two for each peer (links.c). Those
 * two deliver answers and control messages, and never run a user's function. */
#ifndef RPC_AGENT_H
#define RPC_AGENT_H

#include <pthread.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "rpc/lifetime.h"
#include "rpc/message.h"
#include "rpc/pool.h"

struct remote_op;
struct autograd;

enum { SECRET_BYTES = 512 };

enum peer_state { PEER_HERE, PEER_LEFT, PEER_GONE };

struct peer {
    duet_rpc *rpc;
    int rank;
    char name[NAME_BYTES];
    enum peer_state state;
    int followed;  /* 1: left because another worker had ended */
    char why[256]; /* for PEER_GONE: the reason */
    /* its link */
    int fd;                     /* -1: no link; this worker has none to itself */
    int ended;                  /* 1: the link sends and receives no more */
    struct frame *first, *last; /* frames to be sent; `last` is valid if `first` is set */
    pthread_cond_t work;
    pthread_t writes, reads; /* the first `threads` of them run */
    int threads;
};

struct function {
    char name[NAME_BYTES];
    int (*run)(duet_rpc_call *call, void *context);
    void *context;
    duet_device *device; /* NULL: none */
};

/* The result of a call from here. Two may hold it: the program, and the table of calls without an
 * answer. All fields except `refs` are written under the worker's lock. */
struct duet_future {
    duet_rpc *rpc;
    uint64_t id;
    int to, refs, done, code;
    char function[NAME_BYTES];
    char text[ERROR_BYTES];  /* the message of code */
    struct message *answer;  /* NULL: none, or taken */
    int64_t began, deadline; /* 0: none */
    pthread_cond_t ended;
    struct remote_op *op;           /* rpc/autograd.h: the call belongs to a pass; else NULL */
    duet_autograd_context *context; /* a context that the call holds; NULL: none */
    uint64_t holds;                 /* an object: the pass that served a call; 0: none */
    struct duet_future *next;       /* in its list */
};

/* The value of a reference, at its owner. */
struct owner {
    duet_rpc *rpc;
    char type[NAME_BYTES]; /* the class of its object */
    int ready;             /* 1: the value exists, or `failed` says why it does not */
    struct failures failed;
    struct duet_rpc_value value;
    duet_device *device; /* the device that has its tensors */
    void *object;
    void (*destroy)(void *object);
    duet_params *params; /* for a parameter: its set, and its index there */
    int param;
    struct autograd *pass; /* the pass that a call left; NULL: none */
};

struct duet_rref {
    duet_rpc *rpc;
    uint64_t id;
    int owner, refs;
    struct duet_future *created; /* for remote(): the call that makes the value; else NULL */
};

/* Decides which thread has a device, in the order of their requests. Each has at most one, and
 * releases it before it waits for another worker, so no two threads wait for each other. */
struct turns {
    duet_device *device;
    uint64_t next, serving; /* a ticket lock: each thread draws a number */
    pthread_t holder;
    int held;
};

struct duet_rpc {
    char name[NAME_BYTES];
    int rank, world;
    int64_t timeout_ns;
    int silence_ms; /* over TCP: then a machine that does not answer counts as gone */
    duet_device *device;
    int beyond; /* 1: TCP, so others may be on other machines */
    char secret[SECRET_BYTES];
    pthread_mutex_t lock;
    pthread_cond_t changed; /* wakes all waits for peers, references, devices and the end */
    struct peer peers[MOST_WORKERS];
    struct function *functions; /* [function_count], filled before the first call arrives */
    int function_count;
    struct duet_future *pending; /* newest first */
    uint64_t ids;                /* counter of the last id */
    struct pool pool;
    struct turns turns[DUET_MAX_DEVICES];
    void (*deliver)(struct peer *peer, struct frame *frame); /* take_frame, for links.c */
    int stop;
    int serving;      /* calls that are running here */
    uint64_t came;    /* workers that wait for all to end, a bit each */
    int lost;         /* the first to end before the common end; -1: none */
    struct life life; /* its table holds this worker's values: struct owner */
    int kept;         /* the program's references; futures that it holds or that have no answer */
    int over;         /* 1: shut down; whoever releases the last of these frees the rest */
    duet_autograd_context *contexts;
    uint64_t contexts_made;
};

/* A call that runs here. */
struct duet_rpc_call {
    duet_rpc *rpc;
    struct message *said;   /* the caller's message, with the arguments */
    struct failures failed; /* the first one */
    int (*run)(duet_rpc_call *call, void *context);
    void *context_of_run;
    struct owner *self;
    struct wire_out answer;
    int returned;          /* 1: the function has returned its result */
    duet_device *device;   /* the function's, or in backward its pass's; NULL: none */
    struct autograd *pass; /* begun by the function; NULL: none */
    void *object;
    void (*destroy)(void *object);
};

uint64_t new_id(duet_rpc *rpc); /* call it under the lock */
int find_worker(const duet_rpc *rpc, const char *name, int *rank);
/* ERR_USAGE: the name begins with "duet.", which is reserved for the library. */
int user_name_check(const char *name);
/* The error of a call that needs a worker: "rpc: worker 'x' is gone: why", or "has left". */
int peer_error(const duet_rpc *rpc, int rank, const char *what);
/* Releases the lock, after a reference or a future has ended. */
void unlock_or_end(duet_rpc *rpc);

/* ---- waiting ----
 * Called around every wait for another worker: releases the device of this thread, and lets the
 * pool start another thread in its place. Not under the lock. */
duet_device *pause_begin(duet_rpc *rpc); /* the device; NULL: this thread had none */
void pause_end(duet_rpc *rpc, duet_device *device);
void device_take(duet_rpc *rpc, duet_device *device); /* both: NULL is fine */
void device_give(duet_rpc *rpc, duet_device *device);
duet_device *device_of_thread(duet_rpc *rpc); /* NULL: this thread has none */

/* Both wait under the lock, for a second at most, because all waits are in loops. ERR_TIMEOUT,
 * without a message: the deadline has passed. deadline 0: none. */
int rpc_wait(duet_rpc *rpc, pthread_cond_t *cond, int64_t deadline);
int wait_changed(duet_rpc *rpc, int64_t deadline);

/* ---- rendezvous ---- */
int choose_transport(duet_rpc *rpc, const struct duet_rpc_options *o); /* and the secret */
/* Opens the sockets to all other workers, and gets their names. */
int rendezvous(duet_rpc *rpc);

/* ---- links ---- */
int links_start(duet_rpc *rpc);
/* Both are called under the lock and return at once. send_frame takes the frame. */
void send_frame(duet_rpc *rpc, int to, struct frame *frame);
void tell_peer(duet_rpc *rpc, int to, const struct message *m); /* for one without a value */
void links_close(duet_rpc *rpc); /* no message arrives once it has returned */

/* ---- control ---- */
/* Handles a received message, and takes it; NULL: the peer's stream has ended. Under the lock. */
void take_frame(struct peer *peer, struct frame *frame);
void life_emit(void *context, int to, const struct life_message *m); /* for `life` */

/* ---- holders of futures and references (refcount.c); called under the lock ---- */
void future_free(struct duet_future *f); /* nobody may hold it */
void future_drop(struct duet_future *f); /* gives up one hold */
void rref_drop(duet_rref *r);
/* Makes a reference; rref_arrives also holds its object if that is here. NULL: no memory. */
duet_rref *rref_new(duet_rpc *rpc, uint64_t id, int owner);
duet_rref *rref_arrives(duet_rpc *rpc, uint64_t id, int owner);
void rrefs_drop(struct duet_rpc_value *v); /* the references in it */
void value_drop(struct duet_rpc_value *v); /* the value and these */
/* Called before a written value is sent to `to`: the owners of its references count them. Not under
 * the lock. ERR_TIMEOUT: one does not answer until the deadline. */
int values_pass_on(duet_rpc *rpc, const struct wire_out *w, int to, int64_t deadline);

/* ---- calls ---- */
struct outgoing {
    int to;
    const char *function;
    const struct duet_rpc_value *args;
    int count;
    double timeout_s;
    uint64_t self;                  /* as in struct message */
    duet_rref **leaves;             /* gets the reference to what it leaves; NULL: nothing */
    duet_autograd_context *context; /* NULL: none */
    struct remote_op *op;           /* a pass's call, with its path and vars */
    const struct path *path;        /* NULL: not a call of a pass */
    struct var_list *vars;
};
/* Prepares a call of duet_rpc_sync and similar functions; ERR_USAGE: its arguments are invalid. */
int check_call(struct outgoing *o, duet_rpc *rpc, const char *to, const char *function,
               const struct duet_rpc_value *args, int count, double timeout_s);
/* Prepares a call of a method of the reference's object, whose class the owner knows. */
int method_of(struct outgoing *o, duet_rref *r, const char *method,
              const struct duet_rpc_value *args, int count, double timeout_s);
/* Prepares a call at the owner. ERR_TIMEOUT: its value was not made in time. */
int to_owner(struct outgoing *o, duet_rref *r, const char *function, double timeout_s);
int call_begin(struct duet_future **out, duet_rpc *rpc, const struct outgoing *o);
/* The second half of a synchronous call. code is that of its first half, OK if it made a future. */
int call_finish(struct duet_future *f, int code, struct duet_rpc_value *result);
/* Waits and takes the result; its tensors are made on `device`. */
int future_result(struct duet_future *f, duet_device *device, struct duet_rpc_value *result);
void future_answer(duet_rpc *rpc, struct message *answer); /* takes it */
void futures_of_dead(duet_rpc *rpc, int rank);
void futures_expire(duet_rpc *rpc); /* ends overdue calls */
int rref_remote(duet_rref **out, duet_rpc *rpc, struct outgoing *o);

/* ---- serving ---- */
/* Runs the function and answers. */
void serve_call(duet_rpc *rpc, struct message *m);
int add_functions(duet_rpc *rpc, const struct duet_rpc_function *functions, int count);

/* ---- values ---- */
/* Writes a value inside `depth` lists. */
int value_write(duet_rpc *rpc, struct wire_out *w, const struct duet_rpc_value *v, int depth);
/* After the last use of the written value: frees the bytes and releases its references. */
void values_done(duet_rpc *rpc, struct wire_out *w);
/* Makes the tensors of a received value, on `device`. */
int value_make(struct duet_rpc_value *v, duet_device *device);
/* Makes the single value that this worker has written for itself. */
int value_take(duet_rpc *rpc, const struct wire_out *w, duet_device *device,
               struct duet_rpc_value *out);

/* ---- references ---- */
struct owner *owner_find(duet_rpc *rpc, uint64_t rref);                  /* under the lock */
struct owner *owner_new(duet_rpc *rpc, uint64_t rref, const char *type); /* held once, too */
/* Sets the value's state: it exists, or this error says why it does not. */
void owner_ready(duet_rpc *rpc, uint64_t rref, int code);
int owner_wait(duet_rpc *rpc, uint64_t rref, struct owner **out);
void owner_free_all(duet_rpc *rpc);
void life_free(void *context, uint64_t rref, void *value); /* for `life` */

#endif
