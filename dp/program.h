/* The inside of duet_data_parallel, DataParallel around a forward function of a program.
 *
 *     program_open.c      makes and frees what it works on
 *     program.c           the step: forward on all devices, backward, the sum
 *     program_passes.c    what a backward leaves: sums over several passes, the gradient of x
 *
 * dp.h is the same for the command, which knows its model and its largest batch beforehand. Here
 * every step may be of another shape. */
#ifndef DP_PROGRAM_H
#define DP_PROGRAM_H

#include "api/api.h"
#include "dp/worker.h"
#include "scatter_gather/scatter_gather.h"

/* A tensor cut into rows: those of the device it lies on are a view of it, the others a copy. */
struct pieces {
    struct duet_tensor part[MAX_DEVICES];
    void *memory[MAX_DEVICES]; /* owned, device memory, kept from step to step */
    size_t room[MAX_DEVICES];  /* its bytes */
};

/* What backward can start from. */
enum roots { NO_ROOTS, OUTPUTS, LOSSES };

/* Backward passes whose gradients are added up. */
struct passes {
    int of_update, done, of_next; /* as in struct duet_tape */
    float *sums;                  /* of the passes done, on device 0, owned; NULL: never needed */
};

struct duet_data_parallel {
    int count, output_device;
    duet_var *(*forward)(duet_tape *tape, duet_var *x, void *context);
    duet_var *(*loss)(duet_tape *tape, duet_var *output, const duet_tensor *y, void *context);
    void (*warn)(const char *text, void *context);
    void *context;
    int warned; /* 1: of scalar losses */

    struct duet_params *params[MAX_DEVICES]; /* [0] is the program's, the others are copies */
    uint64_t layout_version;                 /* of params[0], as it was at the beginning */
    struct duet_tape *tape[MAX_DEVICES];
    struct device_group group;
    struct workers *workers;
    struct param_range *groups; /* of the parameter arenas, values and gradients alike */
    int group_count;
    struct reduce_plan reduce;
    size_t buffer_bytes; /* of the buffers of params[0], as they were at the beginning */
    int input_grad;      /* 1: x is a leaf */
    struct passes passes;

    /* The step under way. The caller writes it while the threads sleep; thread r writes root[r] and
     * losses[r]. */
    enum duet_pass pass;
    int sizes[MAX_DEVICES]; /* samples of each device */
    int used;               /* devices 0 .. used-1 take part */
    struct pieces x, y, grad;
    enum roots roots;              /* after a forward in training */
    int in_forward;                /* 1: the loss is computed there */
    struct var *leaf[MAX_DEVICES]; /* on tape[r]: x */
    int has_input_grad;            /* 1: behind a backward, until the next forward */
    struct var *root[MAX_DEVICES]; /* on tape[r]: the output, PLAIN, or the loss */
    double losses[MAX_DEVICES];
};

/* Gives a warning, a line of text, to the program. */
void data_parallel_warn(const struct duet_data_parallel *dp, const char *text);

/* ERR_USAGE, in PyTorch's words: the parameters are not on the first device, or a ddp has them. */
int data_parallel_check_module(const struct duet_params *params, struct device *first);

/* Runs `collective` led by device `lead`, behind what all devices have enqueued and before what
 * they enqueue later. Device 0 leads again afterwards, also after a failure, whose text stays. */
int data_parallel_led_by(struct duet_data_parallel *dp, int lead,
                         int (*collective)(struct duet_data_parallel *dp, void *what), void *what);

/* ---- program_passes.c ---- */

/* A forward in training begins. */
void data_parallel_begin_pass(struct duet_data_parallel *dp);

/* The gradients of a pass have come to device 0: they become the sum over the passes so far. */
int data_parallel_end_pass(struct duet_data_parallel *dp);

#endif
