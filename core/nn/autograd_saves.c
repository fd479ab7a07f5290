/* The tensors that PyTorch saves for the backward of an op: those that the gradient's formula
 * reads, and no others. A relu reads its result, so its input may be freed; a convolution and a
 * norm read their inputs; a sum reads nothing. The backward of Duet's node reads the same tensors
 * (`spares`); the table has the ops for which PyTorch saves other or more tensors, as
 * torch.autograd.graph.saved_tensors_hooks shows in PyTorch 2.15.
 *
 * Nodes that are not ops in PyTorch have no rule: views, layouts and the margins of a pool are
 * `same_as` their operand (nn/tape/tape.h). */
#include "nn/autograd_saves.h"

uint64_t autograd_bytes(const struct tensor *x) {
    return (uint64_t)tensor_count(x) * dtype_bytes(x->dtype);
}

/* ---- in addition to the operands ---- */

enum { INDEX = 8, STATISTIC = 4 }; /* bytes of an int64, and of a float */

/* The index of each maximum. */
static uint64_t indices(const struct node *n) {
    return INDEX * (uint64_t)tensor_count(&n->y->value);
}

/* The rows that were looked up. */
static uint64_t looked_up(const struct node *n) {
    return INDEX * (uint64_t)tensor_count(&n->args.in[1]);
}

/* One byte per element: for a condition, or for dropout on a GPU; dropout2d keeps one number per
 * plane. */
static uint64_t mask(const struct node *n) {
    const struct tensor *y = &n->y->value;
    if (n->op != OP_DROPOUT || !n->args.p.dropout.planes) return (uint64_t)tensor_count(y);
    return STATISTIC * (uint64_t)y->dims[0] * (uint64_t)y->dims[1];
}

/* Mean and 1 / deviation of each channel, or of each row. */
static uint64_t of_channels(const struct node *n) {
    return 2 * STATISTIC * (uint64_t)n->y->value.dims[1];
}
static uint64_t of_rows(const struct node *n) {
    return 2 * STATISTIC * (uint64_t)n->args.in[0].dims[0];
}

/* The values that a recurrent layer's steps save for backward. */
static uint64_t of_steps(const struct node *n) {
    return n->args.out[1].data ? autograd_bytes(&n->args.out[1]) : 0;
}

/* For attention: one for each query. */
static uint64_t log_sums(const struct node *n) {
    return autograd_bytes(&n->args.out[1]);
}

/* Cross entropy is log_softmax and nll_loss: the first one's result is kept, and in backward the
 * gradients of both exist at once. */
static uint64_t log_probabilities(const struct node *n) {
    return autograd_bytes(&n->x->value);
}

/* ---- the table ---- */

static const struct autograd_rule rules[OP_COUNT] = {
    [OP_ADD_FORWARD] = {.gives = SPARES_X | SPARES_X2},
    [OP_SUBTRACT_FORWARD] = {.gives = SPARES_X},
    [OP_SUM] = {.gives = SPARES_X}, /* backward expands it */
    [OP_AVG_POOL_FORWARD] = {.saves = SPARES_X},
    [OP_MAX_POOL_FORWARD] = {.saves = SPARES_X, .more = indices},
    [OP_ADAPTIVE_AVG_POOL_FORWARD] = {.saves = SPARES_X},
    [OP_WHERE] = {.more = mask},
    [OP_DROPOUT] = {.more = mask},
    [OP_CROSS_ENTROPY_FORWARD] = {SAVES_NOTHING, .more = log_probabilities,
                                  .work = log_probabilities},
    [OP_MSE_FORWARD] = {.saves = SPARES_X},
    [OP_BATCH_NORM_FORWARD] = {.saves = SPARES_X, .more = of_channels},
    [OP_LAYER_NORM_FORWARD] = {.more = of_rows},
    [OP_RECURRENT_FORWARD] = {.saves = SPARES_Y, .more = of_steps},
    [OP_ATTENTION_FORWARD] = {.more = log_sums},
    [OP_GATHER_ROWS] = {SAVES_NOTHING, .more = looked_up},
    [OP_TAKE_ALONG] = {.more = looked_up},
    [OP_ADD_ALONG] = {.more = looked_up},
};

/* Functions with slope 0 or 1 do not read x; e^x, sqrt(x) and 1/x read their results. */
static void of_activation(enum activation kind, struct autograd_rule *rule) {
    switch (kind) {
    case ACTIVATION_ROUND:
    case ACTIVATION_FLOOR:
    case ACTIVATION_CEIL:
    case ACTIVATION_TRUNC:
    case ACTIVATION_FLOOR_DIVIDE: rule->saves = SAVES_NOTHING; break;
    case ACTIVATION_REMAINDER:
    case ACTIVATION_FMOD:
    case ACTIVATION_SHIFT: rule->gives = SPARES_X; break;
    case ACTIVATION_EXP:
    case ACTIVATION_SQRT:
    case ACTIVATION_RECIPROCAL: rule->saves = SPARES_Y; break;
    default: break;
    }
}

struct autograd_rule autograd_rule_of(const struct node *n) {
    struct autograd_rule rule = rules[n->op];
    const int *y = n->y->value.dims;
    if (n->op == OP_ACTIVATION_FORWARD) of_activation(n->args.p.activation.kind, &rule);
    if (n->op == OP_CROSS_ENTROPY_FORWARD && n->args.p.loss.log_probabilities)
        rule = (struct autograd_rule){.saves = SPARES_X};
    /* A mean over the whole plane is mean(), whose backward reads nothing. */
    if (n->op == OP_ADAPTIVE_AVG_POOL_FORWARD && y[2] * y[3] == 1) rule.saves = SAVES_NOTHING;
    if (!rule.saves) rule.saves = n->op ? SPARES_ALL & ~n->spares : SAVES_NOTHING;
    /* A linear layer's weight is read only for the gradient of x, and x only for that of the
     * weight. */
    rule.saves_weight = n->w && n->op && n->op != OP_GATHER_ROWS;
    if (n->op == OP_LINEAR_FORWARD && !n->x->needs_grad) rule.saves_weight = 0;
    if (n->op == OP_LINEAR_FORWARD && !param_trains(n->w)) rule.saves = SAVES_NOTHING;
    return rule;
}
