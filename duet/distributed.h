/* duet/distributed.h: process groups with the calls of torch.distributed, DistributedDataParallel,
 * fully_shard and SyncBatchNorm. DataParallel, which needs only one process, is in parallel.h.
 *
 * Two processes hold the numbers 1 and 2 and add them up; both print 3:
 *
 *     static int work(int rank, void *context) {
 *         (void)context;
 *         duet_group *group = NULL;
 *         duet_device *device = NULL;
 *         duet_tensor *t = NULL;
 *         float sum = rank + 1;
 *         int code = duet_group_init(&group, 0);
 *         if (!code) code = duet_device_open(&device, "cpu", rank, 1 << 26);
 *         if (!code) code = duet_tensor_create(&t, device, DUET_F32, 1, (int[]){1}, &sum);
 *         if (!code) code = duet_all_reduce(group, t, DUET_SUM, NULL);
 *         if (!code) code = duet_tensor_read(t, &sum);
 *         if (!code) printf("rank %d: %g\n", rank, sum);
 *         duet_tensor_free(t);
 *         duet_devices_close(&device, 1);
 *         duet_group_destroy(&group);
 *         return code;
 *     }
 *     int main(void) { return duet_exit_status(duet_spawn(2, work, NULL)); }
 * */
#ifndef DUET_DISTRIBUTED_H
#define DUET_DISTRIBUTED_H

#include "functions.h"
#include "train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- process groups: torch.distributed ----
 *
 * Several processes, the ranks, compute together; each has its own devices and tensors. The program
 * starts them itself, as above and as with torch.multiprocessing.spawn. Or `duet run`, torchrun,
 * mpirun or n shells start them, and set RANK and WORLD_SIZE for each. On several machines mpirun
 * or srun starts them, and MPI moves their bytes (docs/machines.md). Jobs that are started by hand
 * at the same time need different MASTER_PORTs. The number only names the job; no port is opened.
 *
 * Calls are collective: all ranks of the group make the same calls in the same order, each with a
 * tensor of the same type and size. Ranks that make different calls get an error. A warning on
 * stderr names a missing rank after ten seconds, or DUET_WARN_AFTER seconds, and the error at the
 * timeout names it again. The calls of a duet_ddp and of SyncBatchNorm are calls of their group.
 * Ranks may order calls on different groups differently if the earlier call is asynchronous; the
 * same holds for duet_group_new. After any error but DUET_USAGE the job has failed: destroy the
 * group and end.
 *
 * The last argument of a call is its handle. With NULL the call returns when its result is ready
 * (async_op=False). Otherwise it returns at once; do not use or free the tensors until you have
 * waited for *work.
 *
 * Terms are added in one fixed order, whatever the number of elements, so all ranks get the same
 * bits, run after run. DUET_MEAN multiplies each term by 1/n before it is added; it takes floats
 * of any width. Sums of 16-bit floats are rounded after each addition, and integers wrap around.
 *
 * Only one thread at a time may use a group. */

enum { DUET_ANY_SOURCE = -1 };

/* Starts n processes, each of which runs work(rank, context) on a copy of this program, and waits
 * for all of them. work destroys its group and returns a code of enum duet_code. If a rank fails,
 * the others are ended, and the result is the first failure. Call it while no device and no group
 * is open (else DUET_USAGE), and while no other thread runs. If SIGCHLD is ignored, its default is
 * restored meanwhile, in the ranks too, so that the parent learns how they end.
 *
 * If `duet run`, torchrun or mpirun has started this process as a rank, no process is started: work
 * is called here, with the rank of this process, and n is ignored. So the same program can be
 * started in either way. */
int duet_spawn(int n, int (*work)(int rank, void *context), void *context);

/* init_process_group: waits until all ranks have joined. timeout_s is the number of seconds after
 * which a wait fails; 0 stands for 300. A process that duet_spawn started can call it once. */
int duet_group_init(duet_group **out, double timeout_s);

/* The same for ranks that another program has numbered: this process becomes rank `rank` of
 * world_size, in a job with the processes that give the same name at the same time. No other job of
 * the machine may use the name. A process may be in several such jobs at once; its local rank is
 * `rank`. If one job fails, the others are not affected. */
int duet_group_join(duet_group **out, const char *name, int rank, int world_size, double timeout_s);

/* new_group: makes a group of n ranks of `world`, the group of all ranks. They are numbered 0 ..
 * n-1 in the order of the list. All ranks of `world` call it with the same arguments; on those
 * outside the list *out becomes NULL. The new group may outlive `world`. timeout_s 0: `world`'s
 * timeout. */
int duet_group_new(duet_group **out, duet_group *world, const int *ranks, int n, double timeout_s);

/* Ends pending calls, leaves the group and sets *group to NULL, without waiting for other ranks.
 * Free the handles of its calls first. */
void duet_group_destroy(duet_group **group);

/* The rank in this group, the number of its ranks, and the rank on this machine, to choose a
 * device. For NULL: -1. */
int duet_group_rank(const duet_group *group);
int duet_group_size(const duet_group *group);
int duet_group_local_rank(const duet_group *group);

/* The collectives. n: the size of the group.
 *     broadcast        every rank's tensor becomes that of `root`
 *     reduce           the root's tensor becomes the sum; the others stay as they are
 *     all_reduce       every rank's tensor becomes the sum
 *     gather           output (n times as many elements) on the root: the tensors of all ranks, one
 *                      after another; NULL elsewhere
 *     all_gather       the same on every rank
 *     scatter          input (n times as many) on the root, NULL elsewhere: output becomes part
 *                      number `rank` of it
 *     reduce_scatter   the sum of the inputs, of which each rank gets part number `rank`
 *     all_to_all       output part r becomes part number `rank` of rank r's input:
 *                      all_to_all_single
 * "Sum" stands for op: DUET_SUM, DUET_PRODUCT, DUET_MIN, DUET_MAX or DUET_MEAN. A tensor may be
 * a view of rows.
 *
 * Without split sizes (NULL) all parts have the same length. An output must not partly overlap its
 * input, but calls may work in place. The output may be the input itself. The input of all_gather
 * and gather may be this rank's part of the output. The output of reduce_scatter and scatter may be
 * this rank's part of the input.
 *
 * Split sizes are for parts of different lengths. A list says how many rows of dimension 0 the
 * output or the input has for each of the n ranks. Either all ranks pass a list or none does;
 * otherwise the call fails on each of them with an error that says so. In gather and scatter only
 * the root's list is read. No such call works in place. Rank a must send as many rows to rank b as
 * b expects; otherwise all ranks get an error that names the two. A rank of all_to_all may pass
 * only one of the two lists: then the parts of the other are equal. */
int duet_barrier(duet_group *group, duet_work **work);
int duet_broadcast(duet_group *group, duet_tensor *tensor, int root, duet_work **work);
int duet_reduce(duet_group *group, duet_tensor *tensor, int root, enum duet_reduction op,
                duet_work **work);
int duet_all_reduce(duet_group *group, duet_tensor *tensor, enum duet_reduction op,
                    duet_work **work);
int duet_gather(duet_group *group, duet_tensor *output, const duet_tensor *input,
                const int *output_split_sizes, int root, duet_work **work);
int duet_all_gather(duet_group *group, duet_tensor *output, const duet_tensor *input,
                    const int *output_split_sizes, duet_work **work);
int duet_scatter(duet_group *group, duet_tensor *output, const duet_tensor *input,
                 const int *input_split_sizes, int root, duet_work **work);
int duet_reduce_scatter(duet_group *group, duet_tensor *output, const duet_tensor *input,
                        const int *input_split_sizes, enum duet_reduction op, duet_work **work);
int duet_all_to_all(duet_group *group, duet_tensor *output, const duet_tensor *input,
                    const int *output_split_sizes, const int *input_split_sizes, duet_work **work);

/* Messages from one rank to another, which arrive in the order in which they were sent. send
 * returns at once for a short message and waits for the receiver of a long one. With from =
 * DUET_ANY_SOURCE a receive takes the first message from any rank, and *source says which rank sent
 * it. source may be NULL, and with a handle it must be NULL: use duet_work_source. A tag is at
 * least 0. A receive takes the first message with its tag; others wait in memory. */
int duet_send(duet_group *group, const duet_tensor *tensor, int to, int tag, duet_work **work);
int duet_recv(duet_group *group, duet_tensor *tensor, int from, int tag, int *source,
              duet_work **work);

/* A barrier that finds missing ranks. After timeout_s rank 0 names all of them, or with all = 0
 * only the first one. */
int duet_monitored_barrier(duet_group *group, double timeout_s, int all);

/* The handle of a call. wait returns the code of the call when it has ended. done returns 1 if it
 * has ended, and never waits. After wait, source returns the rank that sent the message. free
 * waits, too. */
int duet_work_wait(duet_work *work);
int duet_work_done(duet_work *work);
int duet_work_source(const duet_work *work);
void duet_work_free(duet_work *work);

/* ---- DistributedDataParallel ----
 *
 * Each rank makes a duet_ddp around its parameters. From then on the gradients after duet_backward
 * are averages over the ranks. They are summed in buckets while backward still runs. The rest of
 * the program stays that of one process:
 *
 *     duet_ddp_create(&ddp, group, params, NULL);
 *     for (...) {                                     // on every rank, with its own samples
 *         duet_tape_begin(tape, params, n, DUET_TRAIN);
 *         ...
 *         duet_backward(tape, loss, NULL);            // the ranks meet here
 *         duet_sgd(params, 0.1, 1);
 *     }
 *     duet_ddp_free(ddp);
 *
 * All ranks do the same number of training passes, or end with duet_ddp_join. If a parameter does
 * not affect the loss of some rank, the next duet_tape_begin fails with PyTorch's message, unless
 * find_unused_parameters is set. After an error the job has failed, as in process groups. */
enum duet_join { DUET_JOIN_OFF, DUET_JOIN, DUET_JOIN_ACTIVE, DUET_JOIN_THROW };
struct duet_ddp_options {
    double bucket_cap_mb;       /* size of a bucket in MiB; 0: PyTorch's 25, and 1 for the first */
    const char *allreduce;      /* as in the command's --allreduce; NULL: auto */
    int find_unused_parameters; /* 1: a pass may skip parameters; makes each step slower */
    int no_overlap;             /* 1: sums only after backward, to show the gain of overlap */
    int no_broadcast_buffers;   /* 1: broadcast_buffers=False: each rank keeps its own buffers */
    enum duet_join join;        /* see duet_ddp_join */
};

/* Collective. Copies the values and buffers of rank 0 to all ranks, and checks that all have
 * parameters of the same shapes and the same options; NULL stands for zeros. `group` must contain
 * all ranks. The group and the parameters must outlive the ddp.
 *
 * From then on rank 0 sends its buffers to all ranks before each forward, in training or
 * evaluation, that follows a step with averaged gradients. So all ranks of a model with buffers
 * must evaluate, as in PyTorch. A single rank that evaluates waits until the timeout, unless it
 * uses DUET_EVALUATE_MODULE. */
int duet_ddp_create(duet_ddp **out, duet_group *group, duet_params *params,
                    const struct duet_ddp_options *options);
void duet_ddp_free(duet_ddp *ddp); /* collective, unless the job has failed */

/* ---- sharded data parallel, PyTorch's fully_shard ----
 *
 * An alternative to duet_ddp: each rank keeps a part of the values, gradients and optimizer state,
 * and gathers complete layers while they are used. The program's step stays as it is. */
enum duet_shard { DUET_SHARD_PARAMETERS, DUET_SHARD_GRADIENTS, DUET_SHARD_OPTIMIZER };
struct duet_fsdp_options {
    enum duet_shard shard; /* what is sharded: this item and those after it (ZeRO 3, 2, 1) */
    const char *units;     /* what is gathered together, as in the command's --units; NULL: layers
                            * with at least 1/16 of all elements */
    int prefetch;          /* units gathered ahead, 1 to 4; 0: one; -1: do not prefetch */
    int no_reshard_after_forward; /* 1: gathered units stay from forward to backward */
    int accumulate; /* 1: allows duet_tape_accumulate; each rank then has whole gradients */
};

/* Collective. Splits rank 0's parameters over the ranks of `group`, which contains all ranks and
 * must outlive the parameters. Call it before you make an optimizer and before the first training
 * pass; options NULL stands for zeros. From then on gradients are averages over the ranks, as with
 * a duet_ddp, and duet_params_value and duet_params_grad are NULL: no rank has them complete. These
 * calls are then collective: all passes, including evaluation; duet_params_save and
 * duet_checkpoint_save, in which rank 0 writes a whole file; duet_clip_grad_norm; and
 * duet_params_free, unless the job has failed. duet_params_load reads a whole file on each rank. */
int duet_fsdp_wrap(duet_params *params, duet_group *group, const struct duet_fsdp_options *options);

/* Uneven inputs, as PyTorch's `with model.join()`. With options.join each rank calls it after its
 * last pass. A rank that calls it early takes part in the passes of the others, with gradients of
 * zero, until all ranks have called it. Then all ranks get the parameters and buffers of one rank,
 * the highest-numbered among those that trained longest. The state of an optimizer is not copied.
 *     DUET_JOIN          divides sums by the number of all ranks
 *     DUET_JOIN_ACTIVE   divides by the number of ranks that still have batches:
 *                        divide_by_initial_world_size=False
 *     DUET_JOIN_THROW    the job ends if some ranks have batches and others do not
 * Each step is slower with options.join. With SyncBatchNorm only DUET_JOIN_THROW is allowed. */
int duet_ddp_join(duet_ddp *ddp);

/* A communication hook replaces the average of a bucket: register_comm_hook. duet_backward calls
 * the hook, on the calling thread, for each bucket as soon as the bucket's gradients are ready, in
 * the same order on all ranks. When the hook returns DUET_OK, `gradients` holds the final gradient,
 * so the hook itself divides by the number of ranks. Any other code ends the job with the message
 * of duet_error().
 *
 *     static int hook(const struct duet_bucket *bucket, void *context) {
 *         return duet_all_reduce(bucket->group, bucket->gradients, DUET_MEAN, NULL);
 *     }
 *
 * A hook may instead begin the call with a handle, &work, and return duet_bucket_then(bucket, work,
 * NULL, NULL). Backward then continues meanwhile. The handle corresponds to PyTorch's Future. At
 * its end duet_backward goes through the buckets: it waits for the work, which may be NULL, calls
 * then(bucket, state), unless `then` is NULL, and frees the handle. `then` may begin another call
 * and return duet_bucket_then once more. `bucket` is valid until all of this is done; these
 * functions take that pointer, not a copy of the struct. */
struct duet_bucket {
    int index;              /* from 0 */
    int is_last;            /* 1: the last bucket of this backward */
    size_t count;           /* elements, with a few zeros between parameters */
    duet_tensor *gradients; /* float (count): this rank's gradients. Belongs to the ddp */
    duet_group *group;      /* the ddp's group */
};
int duet_bucket_then(const struct duet_bucket *bucket, duet_work *work,
                     int (*then)(const struct duet_bucket *bucket, void *state), void *state);

/* Registers a hook. Call it once for each ddp, before the first step, with the same hook on all
 * ranks. If only some ranks have a hook, the first step reports that. */
int duet_ddp_register_comm_hook(duet_ddp *ddp,
                                int (*hook)(const struct duet_bucket *bucket, void *context),
                                void *context);

/* PyTorch's fp16_compress_hook and bf16_compress_hook; register them with context NULL. They round
 * each gradient to 16 bits, divide by the number n of ranks and then sum, and round to 16 bits
 * after each of these operations. So their error is at most (n + 2) u times the mean of |gradient|
 * over the ranks, where u is 2^-11 for fp16 and 2^-8 for bf16. In fp16, numbers below 6e-5 have an
 * error of up to (n + 1) 2^-24, and numbers beyond 65504 become infinite. */
int duet_fp16_compress_hook(const struct duet_bucket *bucket, void *context);
int duet_bf16_compress_hook(const struct duet_bucket *bucket, void *context);

/* SyncBatchNorm: a collective call, made once. From then on every duet_batch_norm in a training
 * pass with these parameters normalises over the samples of all ranks, and the running statistics
 * include them all. A rank may have 0 samples. `group` must contain all ranks. duet_params_free is
 * then collective, unless the job has failed, and must precede duet_group_destroy. */
int duet_convert_sync_batchnorm(duet_params *params, duet_group *group);

#ifdef __cplusplus
}
#endif
#endif
