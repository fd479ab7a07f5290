/* DataParallel. A step goes from top to bottom. Every arrow is a copy to another device or a read
 * by it, and device 0's stream executes all of them:
 *
 *     thread 0 = the caller, device 0                        thread r, device r = 1 .. W-1
 *     ---------------------------------------------------    -----------------------------------
 *     input         host -> 0     the whole global batch     (asleep)
 *     scatter       0 --- rows of pixels (and labels*) --->  r
 *     replicate     0 --- parameters and buffers, always ->  r
 *     ============================== all threads start =========================================
 *     forward (its own share)                                forward (its own share)
 *     ========================== all threads have come back ====================================
 *     gather        0 <-- output -------------------------   r
 *     loss          over the whole batch, on its own tape    (asleep)
 *     scatter_grad  0 --- rows of dL/dy ------------------>  r
 *     ============================== all threads start =========================================
 *     backward                                               backward
 *     ========================== all threads have come back ====================================
 *     reduce        0 <-- gradients, summed as they are read r
 *     optimizer     on device 0 alone                        (asleep)
 *
 * Device 0 does everything that the others do. It also holds the whole batch, all outputs and their
 * gradient, moves every byte, and computes loss and update while the others sleep. That is why DDP
 * exists (ddp/). Two settings take some of the work from device 0 without changing the bits: with
 * --output-device D device D does gather, loss and scatter_grad, and with --dp-reduce sharded every
 * other device adds up a part (scatter_gather/shards.h):
 *
 *     ============================== all threads start =========================================
 *     (waits)                                                reads shard r of all gradients,
 *                                                            sums it
 *     ========================== all threads have come back ====================================
 *     reduce        0 <-- the summed shards --------------   r
 *
 * *) With --loss-in-forward labels are scattered, too. Each device computes its own loss at the end
 * of forward and continues with backward. Gather then fetches S loss sums in place of all outputs,
 * and scatter_grad and the second start are not needed. The bits are the same, because the loss and
 * the gradient of a row depend only on that row and on 1/B. A single device also runs this way,
 * since it has nothing to gather.
 *
 * Who waits for whom. Threads wait at the bars (dp/worker.h). Streams wait for events
 * (scatter_gather/device_group.h). Stream 0 waits for ready[r], which thread r records at the end
 * of its part, when all its reads and writes are enqueued. Stream r waits, at the start of its
 * part, for `done`, which stream 0 records after each collective. The threads hand over enqueued
 * work, not finished work: on an asynchronous device no thread waits for a kernel.
 *
 * Several passes per step (gradient accumulation): each pass runs from input to backward; reduce
 * and optimizer run once, after the last. PyTorch reduces in every pass, which moves more bytes and
 * adds in another order: (pass 1 over all devices) + (pass 2 over all devices).
 *
 * A device without samples (a short last batch) takes part with 0 rows. Its gradients are exact
 * zeros and are added like any others, as a single device adds an empty segment's: -0 + 0 is +0, so
 * leaving them out would not give the same bits. (PyTorch uses fewer replicas then.) */
#include "dp/dp.h"

#include "base/error.h"

/* ---- forward ---- */

int data_parallel_forward(struct duet_data_parallel *m, const duet_tensor *const *x, int inputs,
                          const duet_tensor *y, int outputs, enum duet_pass pass) {
    struct dp_rows rows[MOST_INPUTS + 1];
    CHECK(data_parallel_begin(m, x, inputs, y, outputs, pass, rows)); /* sets up `rows` */
    CHECK(dp_scatter(&m->dp, PHASE_SCATTER, rows, inputs + (y != NULL)));
    CHECK(dp_replicate(&m->dp, PHASE_REPLICATE)); /* only device 0 has the last update so far */
    return dp_on_all_devices(&m->dp, PHASE_FORWARD, data_parallel_forward_on);
}

/* The gathered output, in memory of the caller's tape. */
static int gather_to_tape(struct duet_data_parallel *m, duet_tape *t, struct tensor *whole) {
    CHECK(data_parallel_shape(m, &m->output[0], whole));
    *whole = tape_tensor(t, DTYPE_F32, LAYOUT_PLAIN, whole->rank, whole->dims);
    CHECK(tape_error(t));
    return data_parallel_gather_into(m, &m->output[0], whole);
}

/* ---- backward ---- */

int data_parallel_backward(struct duet_data_parallel *m, const duet_tensor *const *grads, int count,
                           const char *kept) {
    int went_back = m->in_forward; /* backward ran within the forward part */
    CHECK(data_parallel_begin_backward(m, grads, count));
    if (!went_back) CHECK(data_parallel_scatter_grads(m, grads, count));
    CHECK(data_parallel_save_sums(m, kept)); /* the sums of earlier passes */
    if (!went_back) CHECK(dp_on_all_devices(&m->dp, PHASE_BACKWARD, data_parallel_backward_on));
    if (m->shares && m->shares->more_passes) return OK;
    CHECK(dp_reduce(&m->dp));
    return data_parallel_add_sums(m, kept);
}

/* ---- y = model(x) on a tape, as in PyTorch ----
 *
 * All of DataParallel's backward is the backward of y's node:
 *
 *     the caller's tape     y = call(x)  ->  loss            loss  ->  dL/dy  ->  the node of y
 *                               |                                                  |
 *     the replicas'         scatter, replicate, forward,     scatter of dL/dy, backward on each
 *                           gather                           device, reduce: gradients are there
 *
 * The replicas have their own tapes, so the caller's tape sees no parameter: the node tells it
 * which parameters have a gradient. */
static int replicas_backward(duet_tape *t, struct node *n) {
    struct duet_data_parallel *m = n->context;
    struct duet_params *params = m->params[0];
    if (!n->y->grad.data) return OK;
    if (m->output[0].on_tape != n->y)
        return fail(ERR_USAGE, "DataParallel: another forward ran between this one and its "
                               "backward: call backward for each output before the next forward");
    if (t->owner == params) CHECK(data_parallel_check_params(t, params));
    const duet_tensor dy = {.device = t->device, .t = n->y->grad, .borrowed = 1}, *grad = &dy;
    CHECK(data_parallel_backward(m, &grad, 1, data_parallel_kept_of(m, t)));
    m->passes.tape = t;
    m->passes.update = t->update;
    if (t->owner == params) data_parallel_mark_on_tape(t, params);
    return OK;
}

static int call(duet_tape *t, struct duet_data_parallel *m, const duet_tensor *x, duet_var **y) {
    enum duet_pass pass = t->step.training ? DUET_TRAIN : DUET_EVALUATE;
    struct tensor whole;
    CHECK(data_parallel_check_tape(m, t));
    CHECK(data_parallel_forward(m, &x, 1, NULL, 1, pass));
    CHECK(gather_to_tape(m, t, &whole));
    duet_var *rows = tape_var(t, whole, 1);
    if (rows) rows->keeps_grad = 1; /* the replicas' streams read the gradient */
    m->output[0].on_tape = rows;
    if (pass == DUET_TRAIN) {
        m->can_go_back = 1;
        const struct node node = {.backward = replicas_backward, .y = rows, .context = m};
        CHECK(tape_node(t, &node));
    }
    *y = data_parallel_turn_var(m, t, rows, 1);
    return duet_tape_error(t);
}

duet_var *duet_data_parallel_call(duet_tape *t, duet_data_parallel *m, const duet_tensor *x) {
    duet_var *y = NULL;
    if (!t || t->error) return NULL;
    int code = m ? OK : fail(ERR_USAGE, "DataParallel: the module is NULL");
    if (!code) code = call(t, m, x, &y);
    return tape_fail(t, code) ? NULL : y;
}
