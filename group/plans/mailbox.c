/* A message from one rank to another: see windows.h. Until a message is received, it stays in the
 * sender's memory, so a send may end before its receive begins. */
#include "group/plans/pattern.h"

/* A message goes through the sender's mailbox for that receiver, MAILBOX_PIECES slots used in
 * turn by all messages of the two. Pieces are numbered over all messages, so flags count on from
 * one to the next: the base of a call's epochs is `first`.
 *
 * Flags                        written by     read by        meaning
 *   sent,  epoch k             the sender     the receiver   piece k is in its slot
 *   taken, epoch k + MAILBOX_...  the receiver   the sender     piece k is taken: its slot is free
 *
 * `taken` begins at MAILBOX_PIECES, since every slot is free at first. An executor may keep `sent`
 * of a piece with the piece itself: for that a slot begins with `head` elements. */
void send_message(struct plan *plan, const struct window_request *q) {
    size_t stride = q->window / MAILBOX_PIECES, piece = stride - q->head;
    size_t box = (size_t)q->peer * q->window;
    struct range whole = {0, q->count};
    size_t pieces = q->count ? range_pieces(whole, piece) : 1;
    plan->epochs = (uint32_t)pieces;
    plan->credits = MAILBOX_PIECES;
    plan->scratch = (size_t)q->n * q->window;
    if (q->rank != q->root && q->rank != q->peer) return;
    for (size_t j = 0; j < pieces; j++) {
        struct range part = range_piece(whole, piece, j);
        size_t slot = box + (q->first + j) % MAILBOX_PIECES * stride + q->head;
        struct plan_step step = copy_from(q->root, part, rank_bit(q->rank));
        if (q->rank == q->root) {
            step.source_buffer = PLAN_INPUT;
            to_scratch(&step, slot);
            await(&step, rank_bit(q->peer), PLAN_TAKEN, j + 1);
            post(&step, rank_bit(q->peer), PLAN_SENT, j + 1);
        } else {
            from_scratch(&step, slot);
            step.dest_buffer = PLAN_OUTPUT;
            await(&step, rank_bit(q->root), PLAN_SENT, j + 1);
            post(&step, rank_bit(q->root), PLAN_TAKEN, j + 1 + MAILBOX_PIECES);
        }
        add_step(plan, step);
    }
}
