/* duet/rpc.h: remote calls between processes with different roles, as in torch.distributed.rpc.
 *
 * Worker 1 has a function; worker 0 calls it and prints 5:
 *
 *     static int add(duet_rpc_call *call, void *context) {
 *         (void)context;
 *         return duet_rpc_return(call, duet_rpc_int(duet_rpc_arg_int(call, 0) +
 *                                                   duet_rpc_arg_int(call, 1)));
 *     }
 *     static int work(int rank, void *context) {
 *         (void)context;
 *         const struct duet_rpc_function functions[] = {{.name = "add", .run = add}};
 *         struct duet_rpc_options options = {.functions = functions, .function_count = 1};
 *         struct duet_rpc_value sum = {0};
 *         duet_rpc *rpc = NULL;
 *         int code = duet_rpc_init(&rpc, rank ? "helper" : "main", -1, 0, &options);
 *         if (!code && rank == 0)
 *             code = duet_rpc_sync(rpc, "helper", "add",
 *                                  DUET_ARGS(duet_rpc_int(2), duet_rpc_int(3)), 0, &sum);
 *         if (!code && rank == 0) printf("%lld\n", (long long)sum.integer);
 *         int end = duet_rpc_shutdown(&rpc, !code, 0);
 *         return code ? code : end;
 *     }
 *     int main(void) { return duet_exit_status(duet_spawn(2, work, NULL)); }
 *
 * Functions are called by name, and each worker registers its own. Arguments and results are
 * copied. A worker may call itself. A user's function runs once or not at all, because nothing is
 * sent again. docs/rpc.md lists torch.distributed.rpc's functions and their counterparts. */
#ifndef DUET_RPC_H
#define DUET_RPC_H

#include "core.h"
#include "train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct duet_rpc duet_rpc;           /* this process as a worker */
typedef struct duet_rpc_call duet_rpc_call; /* a call, as seen by the function that runs it */
typedef struct duet_future duet_future;
typedef struct duet_rref duet_rref;

/* ---- values: arguments and results ---- */

enum duet_rpc_type {
    DUET_RPC_NONE,
    DUET_RPC_INT,
    DUET_RPC_NUMBER,
    DUET_RPC_TEXT,
    DUET_RPC_BYTES,
    DUET_RPC_TENSOR,
    DUET_RPC_RREF,
    DUET_RPC_LIST,
    DUET_RPC_VAR /* duet/autograd.h */
};

/* Values that a program passes are borrowed only until the function returns, even by
 * duet_rpc_async. The program owns the values that it receives and frees them with
 * duet_rpc_value_free. */
struct duet_rpc_value {
    enum duet_rpc_type type;
    int count;    /* LIST: items */
    size_t bytes; /* BYTES: number of bytes */
    union {
        int64_t integer;
        double number;
        const char *text;
        const void *data;
        duet_tensor *tensor;
        duet_rref *rref;
        duet_var *var; /* belongs to its tape */
        const struct duet_rpc_value *items;
    };
};

static inline struct duet_rpc_value duet_rpc_none(void) {
    struct duet_rpc_value v = {DUET_RPC_NONE, 0, 0, {0}};
    return v;
}
static inline struct duet_rpc_value duet_rpc_int(int64_t integer) {
    struct duet_rpc_value v = {DUET_RPC_INT, 0, 0, {integer}};
    return v;
}
static inline struct duet_rpc_value duet_rpc_number(double number) {
    struct duet_rpc_value v = {DUET_RPC_NUMBER, 0, 0, {0}};
    return v.number = number, v;
}
static inline struct duet_rpc_value duet_rpc_text(const char *text) {
    struct duet_rpc_value v = {DUET_RPC_TEXT, 0, 0, {0}};
    return v.text = text, v;
}
static inline struct duet_rpc_value duet_rpc_bytes(const void *data, size_t bytes) {
    struct duet_rpc_value v = {DUET_RPC_BYTES, 0, 0, {0}};
    return v.data = data, v.bytes = bytes, v;
}
static inline struct duet_rpc_value duet_rpc_tensor(duet_tensor *tensor) {
    struct duet_rpc_value v = {DUET_RPC_TENSOR, 0, 0, {0}};
    return v.tensor = tensor, v;
}
static inline struct duet_rpc_value duet_rpc_rref(duet_rref *rref) {
    struct duet_rpc_value v = {DUET_RPC_RREF, 0, 0, {0}};
    return v.rref = rref, v;
}
static inline struct duet_rpc_value duet_rpc_list(const struct duet_rpc_value *items, int count) {
    struct duet_rpc_value v = {DUET_RPC_LIST, 0, 0, {0}};
    return v.items = items, v.count = count, v;
}

/* The arguments of a call, written out: DUET_ARGS(duet_rpc_int(1), duet_rpc_tensor(x)). */
#define DUET_ARGS(...)                            \
    (const struct duet_rpc_value[]){__VA_ARGS__}, \
        (int)(sizeof((struct duet_rpc_value[]){__VA_ARGS__}) / sizeof(struct duet_rpc_value))
#define DUET_NO_ARGS NULL, 0

/* Frees the contents of a received value and makes it NONE. NULL is fine. */
void duet_rpc_value_free(struct duet_rpc_value *value);

/* ---- workers ---- */

/* A function that others may call by its name. It runs on a thread of the worker's pool. If it has
 * a device, received tensors are there, and no other thread uses the device meanwhile: see
 * "Threads" below. A name "Class.method" is a method of the class. The function with the name of
 * the class is its constructor, which returns an object with duet_rpc_return_object. */
struct duet_rpc_function {
    const char *name; /* letters, digits, "_", ".", at most 127 bytes; must not begin "duet." */
    int (*run)(duet_rpc_call *call, void *context); /* its code; the message is in duet_error() */
    void *context;
    duet_device *device; /* NULL: the device in the options */
};

struct duet_rpc_options {
    const struct duet_rpc_function *functions; /* copied, with the names */
    int function_count;
    duet_device *device; /* where tensors arrive; NULL: this worker receives and sends no tensors */
    int threads;         /* threads that run calls, 0: 16; threads that wait do not count */
    double timeout_s;    /* for init, and for calls without a timeout; 0: 60 */
    double silence_s;    /* tcp: a machine that is silent for this long counts as gone; 0: 30 */
    /* How messages travel: "abstract", within this machine, the default; or "tcp". NULL takes
     * DUET_RPC_TRANSPORT. */
    const char *transport;
};

/* init_rpc: becomes worker `name` (letters, digits, "_", ":", "-", at most 127 bytes) and waits
 * until all workers have joined. With rank -1 and world_size 0 it reads RANK and WORLD_SIZE, which
 * duet_spawn, duet run, torchrun and mpirun set. All workers are on one machine, and no port is
 * opened. Two jobs that are started by hand at the same time need different MASTER_PORTs. With
 * "tcp" workers may be on several machines: rank 0 listens at MASTER_ADDR and MASTER_PORT, and each
 * other worker at its own port, until all have joined.
 *
 * No other process can connect. The kernel must confirm that a peer belongs to the same user, and
 * the peer must prove that it knows the job's secret before its messages are read. The secret
 * itself is never sent. It is DUET_RPC_SECRET, or is made from the job's environment. TCP requires
 * DUET_RPC_SECRET, which duet_spawn and duet run set. TCP is not encrypted: use it within your own
 * network, and a tunnel (ssh, stunnel, WireGuard) beyond. */
int duet_rpc_init(duet_rpc **out, const char *name, int rank, int world_size,
                  const struct duet_rpc_options *options);

/* Leaves the job and sets *rpc to NULL. With graceful 1 it waits until all workers call it and no
 * call is pending anywhere, and serves calls meanwhile. It waits at most timeout_s seconds, or with
 * 0 without limit. If a worker has died or left, the wait ends with an error that names the worker.
 * Do not call it inside a function. Free futures, references, contexts and distributed optimizers
 * (duet/autograd.h) first; futures and references that remain can only be freed. */
int duet_rpc_shutdown(duet_rpc **rpc, int graceful, double timeout_s);

/* get_worker_info: the rank of a name and the name of a rank. If no such worker exists, they return
 * -1 and NULL. name NULL: this worker. */
int duet_rpc_rank(const duet_rpc *rpc, const char *name);
const char *duet_rpc_name(const duet_rpc *rpc, int rank);

/* Threads. Any thread may call duet_rpc_*. The thread that calls duet_rpc_init has the device of
 * the options to itself, as a function has while it runs, so the two never use it at once. A thread
 * that waits for another worker (wait, sync, to_here, shutdown, backward and
 * duet_autograd_context_free) releases the device until the answer arrives. So functions of one
 * device run one at a time, and any depth of calls back and forth works. A thread of your own must
 * take the device before using it. Threads get a device in the order of their requests, and a
 * thread has one device at a time. The calls of a process group (duet/distributed.h) wait without
 * releasing the device: release it first if another rank may meanwhile wait for a function here. */
int duet_rpc_take_device(duet_rpc *rpc, duet_device *device);
void duet_rpc_give_device(duet_rpc *rpc, duet_device *device);

/* ---- calls ---- */

/* Calls `function` of worker `to` with `count` arguments and waits for its result, which becomes
 * *result; result may be NULL. A timeout_s of 0 is the timeout of init, and a negative one is no
 * limit. An error names the worker and the function, with the function's own message. */
int duet_rpc_sync(duet_rpc *rpc, const char *to, const char *function,
                  const struct duet_rpc_value *args, int count, double timeout_s,
                  struct duet_rpc_value *result);

/* duet_rpc_sync without waiting. Arguments are copied before it returns. */
int duet_rpc_async(duet_future **out, duet_rpc *rpc, const char *to, const char *function,
                   const struct duet_rpc_value *args, int count, double timeout_s);

/* Waits for the result. A second wait returns the same code, and NONE. If a future is freed early,
 * its call continues. wait_all returns the first error in the order of the futures. */
int duet_future_wait(duet_future *future, struct duet_rpc_value *result);
int duet_future_wait_all(duet_future *const *futures, int count);
void duet_future_free(duet_future *future);

/* ---- inside a function ---- */

int duet_rpc_arg_count(const duet_rpc_call *call);
/* Argument i as the expected type. If it has another type, these functions return 0 or NULL, and
 * the call fails with that error at its caller. What they return belongs to the call. */
int64_t duet_rpc_arg_int(duet_rpc_call *call, int i);
double duet_rpc_arg_number(duet_rpc_call *call, int i); /* accepts an integer, too */
const char *duet_rpc_arg_text(duet_rpc_call *call, int i);
duet_tensor *duet_rpc_arg_tensor(duet_rpc_call *call, int i);
duet_rref *duet_rpc_arg_rref(duet_rpc_call *call, int i);
const struct duet_rpc_value *duet_rpc_arg(duet_rpc_call *call, int i); /* an argument of any type */
int duet_rpc_call_error(duet_rpc_call *call);                          /* the first error */

void *duet_rpc_self(duet_rpc_call *call); /* in a method: the object */
duet_rpc *duet_rpc_of_call(duet_rpc_call *call);

/* Sets the call's one result, which is copied at once; without it the result is NONE. A constructor
 * returns its object; `destroy` is called when no reference to the object is left. Both return the
 * code with which the function should end. */
int duet_rpc_return(duet_rpc_call *call, struct duet_rpc_value value);
int duet_rpc_return_object(duet_rpc_call *call, void *object, void (*destroy)(void *object));

/* ---- references ---- */

/* remote: calls `function` at worker `to`, leaves its result there and returns a reference to it at
 * once. If the function fails, the first use of the reference returns its error. If the function
 * has not ended after timeout_s (0: the timeout of init; negative: none), each later use returns a
 * timeout: the value may not exist. */
int duet_remote(duet_rref **out, duet_rpc *rpc, const char *to, const char *function,
                const struct duet_rpc_value *args, int count, double timeout_s);

/* RRef(value): makes a reference to a copy of a value on this worker, to an object with the methods
 * of `type`, or to a parameter, whose value to_here copies. */
int duet_rref_create(duet_rref **out, duet_rpc *rpc, struct duet_rpc_value value);
int duet_rref_create_object(duet_rref **out, duet_rpc *rpc, const char *type, void *object,
                            void (*destroy)(void *object));
int duet_rref_create_param(duet_rref **out, duet_rpc *rpc, duet_params *params, int i);
void duet_rref_free(duet_rref *rref); /* the last reference anywhere frees the value */

/* duet_rref_owner returns the owner's rank, which on the owner is duet_rpc_rank(rpc, NULL).
 * duet_rref_wait blocks until the value exists. */
int duet_rref_owner(const duet_rref *rref);
int duet_rref_wait(duet_rref *rref, double timeout_s);

/* to_here fetches a copy of the value. local_value, only on the owner, returns the value itself,
 * which still belongs to the reference. */
int duet_rref_to_here(duet_rref *rref, double timeout_s, struct duet_rpc_value *value);
int duet_rref_local_value(duet_rref *rref, const struct duet_rpc_value **value);

/* The proxies rpc_sync() and rpc_async() call a method of the object on its owner. */
int duet_rref_sync(duet_rref *rref, const char *method, const struct duet_rpc_value *args,
                   int count, double timeout_s, struct duet_rpc_value *result);
int duet_rref_async(duet_future **out, duet_rref *rref, const char *method,
                    const struct duet_rpc_value *args, int count, double timeout_s);

#ifdef __cplusplus
}
#endif
#endif
