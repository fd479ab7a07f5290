/* Model parallelism: a value moves from the tape of one device to that of another, and backward
 * takes the same path back.
 *
 *     tape on device 0    x -- conv -- relu --.                       .-- ... -- loss
 *                                             | duet_var_to           |
 *     tape on device 1                        '-- conv -- relu -------'
 *
 * The tapes between which a value has moved form a ring, and a backward walks over the nodes of all
 * of them, the last one first. Each tape keeps a clock that orders nodes across tapes (Lamport).
 * The clock is the time, but always later than everything that the tape has seen. A tape that
 * receives a value has seen everything that the sender had seen. So the reader of a value comes
 * before its maker in the walk, even if values move back and forth. The walk also follows the order
 * in which one thread recorded: the backward of a micro-batch is enqueued on all devices before
 * that of the previous micro-batch, and the devices overlap. */
#include "base/error.h"
#include "nn/tape/tape_internal.h"

/* ---- the ring ---- */

static int is_linked(const duet_tape *a, const duet_tape *b) {
    const duet_tape *t = a;
    do
        if (t == b) return 1;
    while ((t = t->next) != a);
    return 0;
}

/* Two rings whose members swap their successors are one. */
static void link_tapes(duet_tape *a, duet_tape *b) {
    duet_tape *next = a->next;
    if (is_linked(a, b)) return;
    a->next = b->next;
    b->next = next;
}

/* ---- the move ---- */

/* Enqueues a copy on the stream of `to`, after all current work of the stream of `from`. */
static int pull(duet_tape *to, const struct tensor *copy, duet_tape *from,
                const struct tensor *source) {
    if (!from->moved) CHECK(event_create(from->device, &from->moved));
    CHECK(event_record(from->moved, from->stream));
    CHECK(stream_wait(to->stream, from->moved));
    return copy_peer(to->stream, to->device, copy->data, from->device, source->data,
                     tensor_bytes(source));
}

static int move_backward(duet_tape *t, struct node *n) {
    duet_tape *from = n->context;
    if (!n->x->needs_grad) return OK;
    int first = from->arena.number;
    struct tensor dx = grad_target(from, n->x);
    CHECK(tape_error(from));
    CHECK(pull(from, &dx, t, &n->y->grad));
    CHECK(grad_done(from, n->x, &dx));
    return step_arena_release(&from->arena, first, from->arena.number);
}

static int check_move(const duet_tape *to, const duet_tape *from) {
    if (!from) return fail(ERR_USAGE, "var to: the tape of the var was not given");
    if (to->inside_model || to->inside_forward || from->inside_model || from->inside_forward)
        return fail(ERR_USAGE, "var to: inside a forward function: its replica is on one device");
    CHECK(tape_check_links(to));
    CHECK(tape_check_links(from));
    if (to->step.training != from->step.training)
        return fail(ERR_USAGE, "var to: one pass is for training, the other is not: begin both "
                               "alike");
    if (device_config(to->device)->kind != device_config(from->device)->kind)
        return fail(ERR_USAGE, "var to: %s and %s are of different kinds: open both together",
                    device_name(from->device), device_name(to->device));
    return OK;
}

duet_var *duet_var_to(duet_tape *to, duet_tape *from, duet_var *x) {
    if (!to || to->error || tape_fail(to, check_move(to, from))) return NULL;
    if (to == from) return tape_failed(to, x) ? NULL : x;
    x = x ? to_plain(from, x) : NULL;
    if (!x) return tape_fail(to, tape_error(from)), NULL;
    if (x->value.dtype != DTYPE_F32) {
        tape_fail(to, fail(ERR_USAGE, "var to: a loss stays where it is: move the scores"));
        return NULL;
    }
    struct node node = {.backward = move_backward, .x = x, .context = from};
    struct tensor y = tape_tensor(to, DTYPE_F32, LAYOUT_PLAIN, x->value.rank, x->value.dims);
    if (to->error || tape_fail(to, pull(to, &y, from, &x->value))) return NULL;
    link_tapes(to, from);
    if (from->clock > to->clock) to->clock = from->clock;
    node.y = tape_var(to, y, x->needs_grad);
    if (node.y) node.y->keeps_grad = 1; /* the stream of `from` reads the gradient */
    return tape_node(to, &node) ? NULL : node.y;
}
