/* Tests backward through remote calls: its gradients have the bits of one tape, in whatever order
 * workers answer, and contexts end everywhere. */
#include "tests/rpc/matrix.h"

/* ---- one call, a call passed on, and the same on one tape ---- */

/* To the matrix at `to`, as a method of an object (owner "") or a function; or on to another. */
static void through(struct worker *w, const char *to, const char *owner, const float *want_dw,
                    const float *want_dx) {
    const struct pass p = begin_pass(w, X);
    duet_autograd_context *c = p.context;
    duet_tape *t = p.tape;
    struct duet_rpc_value y;
    float dw[OUT * IN];
    duet_rref *layer;
    const struct duet_rpc_value args[] = {duet_rpc_var(duet_tanh(t, p.leaf)), duet_rpc_text(owner)};
    if (!owner) {
        GOOD(VARS(t, to, "forward", args, 1));
    } else if (*owner) {
        GOOD(VARS(t, to, "pass_on", args, 2));
        to = owner;
    } else {
        GOOD(duet_remote(&layer, w->rpc, to, "Layer", DUET_NO_ARGS, 0));
        GOOD(duet_autograd_rref_sync(t, layer, "forward", args, 1, 0, &y));
        duet_rref_free(layer);
    }
    MUST(y.type == DUET_RPC_VAR);
    duet_var *loss = mean_of_squares(t, y.var);
    FAILS(DUET_USAGE, duet_backward(t, loss, NULL), "with duet_autograd_backward");
    GOOD(duet_autograd_backward(c, &loss, 1, 1));
    same_gradients(&p, to, want_dw, want_dx);
    /* Again: the gradients are added. The third time fails, since they were not kept. */
    GOOD(duet_autograd_backward(c, &loss, 1, 0));
    GOOD(read_gradient(t, to, dw));
    for (int i = 0; i < OUT * IN; i++)
        MUST(dw[i] == want_dw[i] + want_dw[i]);
    FAILS(DUET_USAGE, duet_autograd_backward(c, &loss, 1, 0), "a second time");
    duet_autograd_context_free(c);
}

static void one_tape(struct worker *w) {
    float dw[OUT * IN], dx[ROWS * IN];
    uint64_t used[2];
    if (w->rank) return;
    on_one_tape(w, 0, dw, dx);
    for (int i = 0; i < 2; i++) { /* the second time on tapes that were used before */
        through(w, "w1", NULL, dw, dx);
        through(w, "w0", NULL, dw, dx);
        through(w, "w1", "", dw, dx);
        through(w, "w1", "w2", dw, dx);
        through(w, "w1", "w0", dw, dx);
        through(w, "w1", "w1", dw, dx);
        none_left(w);
        GOOD(duet_device_memory(w->device, &used[i], NULL));
    }
    MUST(used[0] == used[1]); /* gradients end with their context */
    all_bye(w);
}

TEST_WORKERS(autograd, gradients_are_those_of_one_tape, 3, one_tape, functions)

/* ---- results of all kinds ---- */

static void lists(struct worker *w) {
    struct duet_rpc_value y, unused;
    float back[ROWS * IN];
    if (w->rank) return;
    const struct pass p = begin_pass(w, X);
    duet_tape *t = p.tape;
    duet_var *leaf = p.leaf;
    GOOD(VARS(t, "w1", "mirror", DUET_ARGS(duet_rpc_var(leaf))));
    MUST(y.count == 3 && y.items[0].type == DUET_RPC_VAR && y.items[2].integer == 7);
    /* Its result is unused, so backward neither goes there nor waits for it. */
    GOOD(duet_autograd_sync(t, "w1", "forward", DUET_ARGS(duet_rpc_var(leaf)), 0, &unused));
    duet_var *sum = duet_add(t, y.items[0].var, duet_multiply_number(t, y.items[1].var, 2));
    duet_var *roots[2] = {duet_sum(t, sum, NULL, 0, 0), duet_sum(t, leaf, NULL, 0, 0)};
    GOOD(duet_autograd_backward(p.context, roots, 2, 0));
    read_grad(t, leaf, back);
    for (int i = 0; i < ROWS * IN; i++)
        MUST(back[i] == 4, "%g", (double)back[i]);
    FAILS(DUET_USAGE, read_gradient(t, "w1", back), "has no gradient of w here");
    duet_rpc_value_free(&y);
    duet_autograd_context_free(p.context);
    none_left(w);
    /* Without a context the same functions compute. */
    duet_tensor *x = rows(w, X);
    GOOD(duet_rpc_sync(w->rpc, "w1", "forward", DUET_ARGS(duet_rpc_tensor(x)), 0, &y));
    MUST(y.type == DUET_RPC_TENSOR && duet_tensor_dim(y.tensor, 1) == OUT);
    duet_rpc_value_free(&y);
    duet_tensor_free(x);
    all_bye(w);
}

TEST_WORKERS(autograd, results_are_lists_arguments_or_unused, 2, lists, functions)

/* ---- the order of sums ---- */

/* Many calls at once to two workers; some come back here by way of the other. Each adds to the same
 * gradient numbers that cancel out, so another order has other bits. */
static void sum_once(struct worker *w, unsigned seed, float *w0, float *w1) {
    enum { CALLS = 12 }; /* sums of three parts, and of nine */
    duet_autograd_context *c;
    duet_tape *t;
    duet_future *f[CALLS];
    duet_var *loss = NULL;
    GOOD(duet_autograd_context_create(&c, w->rpc));
    GOOD(duet_autograd_pass(&t, c, NULL, ROWS));
    for (int i = 0; i < CALLS; i++) {
        float values[ROWS * IN];
        for (int k = 0; k < ROWS * IN; k++)
            values[k] = X[k] * (i % 3 == 2 ? -1e7f : i % 3 == 1 ? 1e7f : 1) + (float)i;
        struct duet_rpc_value arg = duet_rpc_var(leaf_of(w, t, values));
        seed = seed * 1103515245 + 12345;
        if (i % 2)
            GOOD(duet_autograd_async(&f[i], t, "w1", "forward",
                                     DUET_ARGS(arg, duet_rpc_int(seed >> 20)), 0));
        else
            GOOD(duet_autograd_async(&f[i], t, i % 4 ? "w1" : "w2", "pass_on",
                                     DUET_ARGS(arg, duet_rpc_text(i % 4 ? "w0" : "w1")), 0));
    }
    for (int i = 0; i < CALLS; i++) {
        struct duet_rpc_value y;
        GOOD(duet_future_wait(f[i], &y));
        duet_future_free(f[i]);
        duet_var *part = duet_sum(t, y.var, NULL, 0, 0);
        loss = loss ? duet_add(t, loss, part) : part;
    }
    GOOD(duet_autograd_backward(c, &loss, 1, 0));
    GOOD(read_gradient(t, "w0", w0));
    GOOD(read_gradient(t, "w1", w1));
    duet_autograd_context_free(c);
}

static void same_sums(struct worker *w) {
    float first[2][OUT * IN], again[2][OUT * IN];
    if (w->rank) return;
    sum_once(w, 1, first[0], first[1]);
    for (unsigned i = 2; i < 12; i++) {
        sum_once(w, i, again[0], again[1]);
        MUST(!memcmp(first, again, sizeof first), "try %u: other bits", i);
    }
    none_left(w);
    all_bye(w);
}

TEST_WORKERS(autograd, sums_have_the_same_bits_in_every_order, 3, same_sums, functions)

/* ---- refused calls, which change nothing; several contexts; a worker that leaves ---- */

static void wrong(struct worker *w) {
    const float turned[ROWS * IN] = {2, -3, 0.1f, 5, 0.3f, 7, -0.7f, 0.9f, 1.1f, 1.3f, -11, 1};
    duet_autograd_context *c[3]; /* two passes of one, and one of another */
    duet_tape *t[3];
    duet_var *out[3], *root[3];
    struct duet_rpc_value y;
    float once[OUT * IN], twice[OUT * IN], other[OUT * IN];
    GOOD(duet_autograd_context_create(&c[0], w->rpc));
    GOOD(duet_autograd_context_create(&c[2], w->rpc));
    c[1] = c[0];
    for (int i = 0; i < 3; i++) {
        GOOD(duet_autograd_pass(&t[i], c[i], NULL, ROWS));
        duet_var *leaf = leaf_of(w, t[i], i == 2 ? turned : X);
        GOOD(VARS(t[i], "w1", "forward", DUET_ARGS(duet_rpc_var(leaf))));
        out[i] = y.var;
        root[i] = duet_sum(t[i], y.var, NULL, 0, 0);
    }
    FAILS(DUET_USAGE, duet_autograd_backward(c[0], out, 1, 0), "only for scalar outputs");
    FAILS(DUET_USAGE, duet_autograd_backward(c[0], (duet_var *[]){root[0], out[1]}, 2, 0),
          "scalar");
    FAILS(DUET_USAGE, duet_autograd_backward(c[0], (duet_var *[]){root[0], root[0]}, 2, 0),
          "are the same");
    FAILS(DUET_USAGE, duet_autograd_backward(c[0], root + 2, 1, 0), "is not a var of");
    FAILS(DUET_USAGE, duet_tape_begin(t[0], NULL, 1, DUET_TRAIN), "duet_autograd_backward");
    GOOD(duet_autograd_backward(c[2], root + 2, 1, 1));
    GOOD(duet_autograd_backward(c[0], root + 1, 1, 0));
    GOOD(read_gradient(t[0], "w1", once));
    FAILS(DUET_USAGE, duet_autograd_backward(c[0], root, 2, 0), "a second time");
    GOOD(duet_autograd_backward(c[0], root, 1, 0));
    GOOD(read_gradient(t[0], "w1", twice));
    for (int i = 0; i < OUT * IN; i++)
        MUST(twice[i] == once[i] + once[i]);
    GOOD(read_gradient(t[2], "w1", other));
    MUST(once[0] == X[0] + X[4] + X[8] && other[0] == X[1] + X[5] + X[9]);
    duet_autograd_context_free(c[0]);
    becomes(w, "w1", "contexts", 1);
    duet_tensor *x = rows(w, X);
    FAILS(DUET_USAGE, VARS(t[2], "w1", "forward", DUET_ARGS(duet_rpc_tensor(x), duet_rpc_text(""))),
          "argument 1 is a string");
    duet_var *plain = duet_input(t[2], x);
    FAILS(DUET_USAGE, duet_autograd_backward(c[2], &plain, 1, 0), "requires_grad not set");
    duet_rpc_sync(w->rpc, "w1", "leave", DUET_NO_ARGS, 5, NULL);
    double began = duet_time();
    FAILS(DUET_PEER, duet_autograd_backward(c[2], root + 2, 1, 0), "worker 'w1' is gone");
    MUST(duet_time() - began < 5);
    FAILS(DUET_USAGE, duet_tape_accumulate(t[2], 2), "duet_tape_accumulate: this tape belongs to");
    duet_tensor_free(x);
    duet_autograd_context_free(c[2]);
    GOOD(duet_rpc_shutdown(&w->rpc, 0, 0));
}

static void wrong_or_wait(struct worker *w) {
    if (!w->rank) wrong(w);
    duet_rpc_give_device(w->rpc, w->device);
    if (w->rank) usleep(30000000); /* until it is told to leave */
}

Test(autograd, says_what_is_wrong, .timeout = 60) {
    worker_abrupt = 1;
    WORKERS(2, wrong_or_wait, functions);
}

/* ---- the masks of dropout ---- */

static void read_mask(duet_tape *t, duet_var *x, float *out) {
    duet_tensor *value;
    GOOD(duet_var_value(&value, t, duet_dropout(t, x, 0.5)));
    GOOD(duet_tensor_read(value, out));
    duet_tensor_free(value);
}

/* A pass has the masks of a tape that is drawn alike, and no seed of its own. */
static void masks(struct worker *w) {
    const struct pass p = begin_pass(w, X);
    duet_tensor *x = rows(w, X);
    duet_tape *plain;
    float wanted[ROWS * IN], is[ROWS * IN];
    GOOD(duet_tape_create(&plain, w->device));
    plain->passes = p.tape->passes - 1;
    GOOD(duet_tape_begin(plain, NULL, ROWS, DUET_TRAIN));
    read_mask(plain, duet_leaf(plain, x), wanted);
    read_mask(p.tape, p.leaf, is);
    MUST(!memcmp(is, wanted, sizeof is) && memcmp(is, X, sizeof is));
    duet_tape_seed(p.tape, 99);
    FAILS(DUET_USAGE, duet_tape_error(p.tape), "duet_tape_seed: this tape belongs to");
    duet_tape_free(plain);
    duet_autograd_context_free(p.context);
    duet_tensor_free(x);
}

TEST_WORKERS(autograd, a_pass_has_the_masks_of_a_tape, 1, masks, functions)

/* ---- with a duet_ddp; that it averages is shown by examples/rpc_ddp ---- */

static duet_params *averaged;

FUNCTION(pass_of_ddp) {
    duet_tape *t;
    FAILS(DUET_USAGE, duet_autograd_call_pass(&t, call, averaged, ROWS), "a duet_ddp uses");
    return DUET_OK;
}

/* The gradient, a copy of which the parameter has as well. A pass in the context of a function that
 * somebody calls would be one that other ranks may not begin. */
static void ddp_of_one(struct worker *w) {
    char job[64];
    float is[OUT * IN], want[OUT * IN];
    duet_group *group;
    duet_ddp *ddp;
    duet_autograd_context *c;
    duet_tensor *grad;
    snprintf(job, sizeof job, "rpc-contexts-%d", (int)getpid());
    GOOD(duet_params_create(&averaged, w->device, three_params, 1));
    GOOD(duet_group_join(&group, job, 0, 1, 0));
    GOOD(duet_ddp_create(&ddp, group, averaged, NULL));
    duet_tape *t;
    GOOD(duet_autograd_context_create(&c, w->rpc));
    GOOD(duet_autograd_pass(&t, c, averaged, ROWS));
    duet_var *loss = mean_of_squares(t, duet_linear(t, leaf_of(w, t, X), 0, -1));
    GOOD(duet_autograd_sync(t, "w0", "pass_of_ddp", DUET_NO_ARGS, 0, NULL));
    GOOD(duet_autograd_backward(c, &loss, 1, 1));
    GOOD(duet_tensor_read(duet_params_grad(averaged, 0), is));
    GOOD(duet_autograd_gradients(&grad, c, averaged, 0));
    GOOD(duet_tensor_read(grad, want));
    duet_tensor_free(grad);
    MUST(!memcmp(is, want, sizeof is) && is[0] != 0);
    FAILS(DUET_USAGE, duet_autograd_backward(c, &loss, 1, 0), "with DDP each pass has one");
    duet_autograd_context_free(c);
    duet_ddp_free(ddp);
    duet_group_destroy(&group);
    duet_params_free(averaged);
}

Test(autograd, averages_where_there_is_a_ddp, .timeout = 60) {
    static const struct duet_rpc_function functions_[] = {F(pass_of_ddp)};
    WORKERS(1, ddp_of_one, functions_);
}
