/* DataParallel: one process, one thread per device, everything through device 0. It wraps a forward
 * function and its parameters. They belong to a program (duet_data_parallel of duet.h) or to the
 * command, whose replicas have shares in segments, step blocks and logs (struct dp_shares).
 *
 *     dp.c                the drawing, and the step from top to bottom
 *     moves.h             its parts: threads, events and copies
 *     program.c           what each device does in forward and backward
 *     program_open.c      allocates and frees its objects
 *     program_rows.c      cuts into rows: inputs, outputs, their gradients
 *     program_dim.c       the same along a dimension other than rows
 *     program_passes.c    results of a backward: sums over several passes, the gradient of x */
#ifndef DP_DP_H
#define DP_DP_H

#include "dp/moves.h"
#include "duet.h"
#include "nn/params/params.h"
#include "nn/tape/tape_internal.h"

enum { MOST_INPUTS = 16, MOST_OUTPUTS = MOST_ROOTS };

/* A tensor cut into rows. The rows of its own device are a view, the others copies. */
struct pieces {
    int rows;               /* rows of the whole tensor */
    int sizes[MAX_DEVICES]; /* the rows of each device; at most `rows` together */
    struct duet_tensor part[MAX_DEVICES];
    struct duet_tensor shown[MAX_DEVICES]; /* for an input: the parts that forward gets */
    void *memory[MAX_DEVICES];             /* owned, device memory, kept from step to step */
    size_t room[MAX_DEVICES];              /* bytes of the memory */
    int lent[MAX_DEVICES];                 /* 1: the memory is borrowed */
};

/* One output of forward, on all devices. Thread r writes [r]. */
struct output {
    duet_var *root[MAX_DEVICES];     /* on tape[r]: PLAIN, or a loss */
    const duet_var *on_tape;         /* the gathered var on the caller's tape; NULL: a tensor */
    int is_loss[MAX_DEVICES];        /* 1: DUET_MEAN or DUET_SUM; gathered as one number */
    enum reduction how[MAX_DEVICES]; /* for a loss */
    double loss[MAX_DEVICES];        /* value of the loss */
    int rows[MAX_DEVICES];           /* of the gathered tensor; 0: the device has no rows */
    const duet_tensor *grad;         /* in backward: the gathered output's; NULL: unused */
    struct pieces grads;             /* gradient of root[r] */
};

/* Backward passes whose gradients are added up. */
struct passes {
    const duet_tape *tape; /* the tape that counted the last pass; NULL: none */
    int64_t update;        /* the update of that tape, as in struct duet_tape */
    float *sums;           /* sums of earlier passes, on device 0, owned; NULL: never needed */
    unsigned zeroed;       /* as in struct duet_params, after the last pass */
    char *has_grad;        /* [parameters] 1: used in at least one pass; owned */
};

/* The contribution of the command's replicas (models/replica.h). Rows are cut into these shares,
 * not by torch.chunk, and every device takes part, even without samples. A loss in forward goes to
 * their logs, and the device continues with backward. */
struct dp_shares {
    int sizes[MAX_DEVICES];             /* samples of each device */
    int32_t step;                       /* for spans */
    int more_passes;                    /* 1: each device keeps its own sums until the last pass */
    int (*begin)(void *context, int r); /* begins device r's pass, on that device's thread */
    void *context;
};

struct duet_data_parallel {
    struct dp dp;
    struct dp_shares *shares; /* borrowed; NULL: a program's */
    duet_var *(*forward)(duet_tape *tape, duet_var *x, void *context); /* or: */
    void (*forward_multi)(duet_tape *tape, const struct duet_replica *replica, duet_var **outputs,
                          void *context);
    /* It runs in the replicas; only the command sets it. */
    duet_var *(*loss)(duet_tape *tape, duet_var *output, const duet_tensor *y, void *context);
    void (*warn)(const char *text, void *context);
    void *context;
    int warned_of_scalars, warned_of_chunks; /* 1: the warning was issued */

    /* [0] is the program's; the others are copies. With `shares` all are borrowed, tapes too. */
    struct duet_params *params[MAX_DEVICES];
    struct duet_tape *tape[MAX_DEVICES];
    int input_grad; /* 1: backward also computes the gradients of the inputs */
    int dim;        /* the dimension along which inputs are cut and outputs gathered */
    struct passes passes;

    /* The current step. The caller writes it while the threads sleep; thread r writes element r of
     * each output. */
    enum duet_pass pass;
    int used; /* devices 0 .. used-1 take part */
    int inputs, outputs;
    struct pieces x[MOST_INPUTS], y;          /* x[0] has the samples */
    duet_var *leaf[MOST_INPUTS][MAX_DEVICES]; /* [i][r], on tape[r]: x[i]; NULL: it is not float */
    struct output output[MOST_OUTPUTS];
    int can_go_back;    /* 1: after a forward in training */
    int in_forward;     /* 1: the replicas compute the loss, with `loss` */
    int has_input_grad; /* 1: after a backward, until the next forward */
};

/* ---- program_open.c ---- */

/* Makes a duet_data_parallel for the command's replicas: config->params, and a tape for each
 * device, all borrowed. The caller sets m->forward, m->loss and m->context. */
int data_parallel_around(struct duet_data_parallel **out, struct dp_config *config,
                         duet_tape *const *tapes, struct dp_shares *shares);
/* Like duet_data_parallel_free. Returns 0 if a thread is lost and everything must stay, else 1. */
int data_parallel_close(struct duet_data_parallel *m);

/* ---- dp.c ---- */

/* Runs scatter, replicate, and forward on all replicas, whose outputs stay on their devices. x, and
 * with the loss in forward also y, is on device 0. */
int data_parallel_forward(struct duet_data_parallel *m, const duet_tensor *const *x, int inputs,
                          const duet_tensor *y, int outputs, enum duet_pass pass);

/* Runs scatter of the outputs' gradients, backward on all replicas, and reduce, which adds the sums
 * to the kept gradients. Without gradients it starts from the losses in forward. */
int data_parallel_backward(struct duet_data_parallel *m, const duet_tensor *const *grads, int count,
                           const char *kept);

/* ---- program.c ---- */

/* The parts that run on thread r. */
int data_parallel_forward_on(void *m, int r);
int data_parallel_backward_on(void *m, int r);

/* Starts either half of a step. It checks the arguments; for a forward it also cuts and places the
 * rows. */
int data_parallel_begin(struct duet_data_parallel *m, const duet_tensor *const *x, int inputs,
                        const duet_tensor *y, int outputs, enum duet_pass pass,
                        struct dp_rows *rows);
int data_parallel_begin_backward(struct duet_data_parallel *m, const duet_tensor *const *grads,
                                 int count);

/* ERR_USAGE: the call cannot be on this tape, which itself uses the replicas' parameters. */
int data_parallel_check_tape(const struct duet_data_parallel *m, const duet_tape *t);
int data_parallel_check_params(const duet_tape *t, const struct duet_params *params);
/* Tells the tape which parameters have a gradient. */
void data_parallel_mark_on_tape(duet_tape *t, const struct duet_params *params);

/* Passes a warning of one line to the program. */
void data_parallel_warn(const struct duet_data_parallel *m, const char *text);

/* ---- program_rows.c ---- */

/* Memory for part r. To grow, it waits for the device and for moves to it. */
int data_parallel_room(struct duet_data_parallel *m, struct pieces *p, int r, size_t bytes,
                       enum mem_cause cause);

/* Allocates the destination of the rows of `whole`, which is on device `lead`: p->sizes[r] rows on
 * each device, in p->part. It moves nothing. */
int data_parallel_place(struct duet_data_parallel *m, int lead, const duet_tensor *whole,
                        struct pieces *p, enum mem_cause cause, struct dp_rows *rows);

/* Cuts inputs into rows and places them. */
int data_parallel_take(struct duet_data_parallel *m, const duet_tensor *const *x, int inputs,
                       const duet_tensor *y, struct dp_rows *rows);

/* Lends memory for part r, in place of data_parallel_room's. */
void data_parallel_lend(struct pieces *p, int r, void *memory, size_t bytes);

/* The shape of a gathered output, without memory. ERR_USAGE: it is a loss only in some replicas. */
int data_parallel_shape(struct duet_data_parallel *m, struct output *o, struct tensor *whole);

/* Gathers the rows of the replicas' outputs into `whole`, which has that shape. */
int data_parallel_gather_into(struct duet_data_parallel *m, struct output *o, struct tensor *whole);

/* Gathers the rows of all replicas, or their losses, into a new tensor on the output device. */
int data_parallel_gather(struct duet_data_parallel *m, struct output *o, duet_tensor **whole);

/* ERR_USAGE: these cannot be the gradients of the gathered outputs. */
int data_parallel_check_grads(struct duet_data_parallel *m, const duet_tensor *const *grads,
                              int count);

/* Scatters the gradients of the outputs to the replicas; NULL: the output has none. */
int data_parallel_scatter_grads(struct duet_data_parallel *m, const duet_tensor *const *grads,
                                int count);

/* ---- program_dim.c: m->dim comes first while rows are cut and gathered; 0: nothing to do ---- */

/* The shape with m->dim first; with back 1, the original shape of a shape that has it first. */
void data_parallel_turn(const struct duet_data_parallel *m, struct tensor *shape, int back);

/* ERR_USAGE: a tensor of this shape and type cannot be cut along m->dim. */
int data_parallel_check_dim(const struct duet_data_parallel *m, const struct tensor *t);

/* Sets *front to `whole`, on device `lead`, with m->dim first. Its memory is p->memory[lead], or
 * that of `whole` if nothing has to move. */
int data_parallel_to_front(struct duet_data_parallel *m, int lead, const duet_tensor *whole,
                           struct pieces *p, enum mem_cause cause, duet_tensor *front);

/* x permuted by a node of the tape; x itself without a dim. NULL: the tape has the error. */
duet_var *data_parallel_turn_var(const struct duet_data_parallel *m, duet_tape *t, duet_var *x,
                                 int back);

/* Input i as forward sees it on device r: in shown[r], and if it is float, *x on the tape. */
int data_parallel_show(struct duet_data_parallel *m, int i, int r, duet_var **x);

/* Replaces a gathered tensor by one with m->dim in its original position. */
int data_parallel_turn_back(const struct duet_data_parallel *m, duet_tensor **tensor);

/* ---- program_passes.c ---- */

/* Which gradients on device 0 belong to earlier passes of this update, as tape t counts, and stay
 * in the sum: element i is 1 for parameter i. NULL: none. */
const char *data_parallel_kept_of(const struct duet_data_parallel *m, const duet_tape *t);

/* They surround a backward, which overwrites the gradients on device 0: they save the kept ones,
 * and add them again. */
int data_parallel_save_sums(struct duet_data_parallel *m, const char *kept);
int data_parallel_add_sums(struct duet_data_parallel *m, const char *kept);

#endif
