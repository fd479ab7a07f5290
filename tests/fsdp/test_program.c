/* duet_fsdp_wrap in programs: after some steps the files of parameters, buffers and optimizer equal
 * those of a duet_ddp, byte by byte, whatever is sharded and however the model uses its parameters.
 * With CUDA_EMULATION the tests also run on GPUs. */
#include <math.h>
#include <stdlib.h>

#include "tests/duet/shared.h"
#include "tests/harness/scratch.h"

enum { TABLE, FC1_W, FC1_B, BN_W, BN_B, FC2_W, FC2_B, NORM_W, NORM_B, HEAD, HEAD_B, PARAMS };
enum { SAMPLES = 6, VOCABULARY = 37, WIDTH = 24, HIDDEN = 50, STEPS = 5, LARGEST = 1400 };
static const struct duet_param shapes[PARAMS] = {{"table.weight", 2, {VOCABULARY, WIDTH}, NULL},
                                                 {"fc1.weight", 2, {HIDDEN, WIDTH}, NULL},
                                                 {"fc1.bias", 1, {HIDDEN}, NULL},
                                                 {"bn.weight", 1, {HIDDEN}, NULL},
                                                 {"bn.bias", 1, {HIDDEN}, NULL},
                                                 {"fc2.weight", 2, {WIDTH, HIDDEN}, NULL},
                                                 {"fc2.bias", 1, {WIDTH}, NULL},
                                                 {"norm.weight", 1, {WIDTH}, NULL},
                                                 {"norm.bias", 1, {WIDTH}, NULL},
                                                 {"head.weight", 2, {VOCABULARY, WIDTH}, NULL},
                                                 {"head.bias", 1, {VOCABULARY}, NULL}};
static const struct duet_buffer buffers[] = {{"bn.running_mean", DUET_F32, 1, {HIDDEN}, 0},
                                             {"bn.running_var", DUET_F32, 1, {HIDDEN}, 1}};

enum {
    TIED = 1,       /* the head's weight is the table's, its bias is not; head.weight is unused */
    FROZEN = 2,     /* fc1, which lies between trained layers */
    CLIPPED = 4,    /* by a norm that is always larger */
    SYNC_BN = 8,    /* statistics of all ranks */
    EVALUATES = 16, /* a pass without gradients before each step */
    GOES_BACK = 32  /* goes back to a checkpoint, after a step that is dropped */
};

struct job {
    int ranks, traits, passes;
    const char *optimizer;
    struct duet_fsdp_options fsdp;
};

struct rank {
    const struct job *job;
    const char *kind;
    int sharded; /* 0: a duet_ddp */
    int rank;
    duet_group *group;
    duet_device *device;
    duet_params *params;
    duet_optimizer *optimizer;
    duet_tape *tape;
    duet_ddp *ddp;
};

/* Each rank has its own values: those of rank 0 count. */
static int make_params(struct rank *r) {
    struct duet_param params[PARAMS];
    float *values = malloc(PARAMS * LARGEST * sizeof *values);
    for (int i = 0; i < PARAMS * LARGEST; i++)
        values[i] = 0.3f * sinf((float)(i + 1000 * r->rank));
    memcpy(params, shapes, sizeof shapes);
    for (int i = 0; i < PARAMS; i++)
        params[i].values = values + i * LARGEST;
    int code = duet_params_create(&r->params, r->device, params, PARAMS);
    if (!code) code = duet_params_register_buffers(r->params, buffers, 2);
    if (!code && r->job->traits & FROZEN) code = duet_params_freeze(r->params, "fc1");
    free(values);
    return code;
}

static int open_rank(struct rank *r) {
    const struct duet_ddp_options whole = {.allreduce = "direct", .find_unused_parameters = 1};
    struct duet_optimizer_options options;
    const struct job *job = r->job;
    int code;
    if ((code = duet_group_init(&r->group, 60))) return code;
    r->rank = duet_group_rank(r->group);
    if ((code = duet_device_open(&r->device, r->kind, 0, 96 << 20))) return code;
    if ((code = make_params(r)) || (code = duet_tape_create(&r->tape, r->device))) return code;
    code = r->sharded ? duet_fsdp_wrap(r->params, r->group, &job->fsdp)
                      : duet_ddp_create(&r->ddp, r->group, r->params, &whole);
    if (!code && job->traits & SYNC_BN) code = duet_convert_sync_batchnorm(r->params, r->group);
    if (!code) code = duet_optimizer_defaults(&options, job->optimizer);
    options.lr = 0.01;
    options.weight_decay = 0.05;
    options.momentum = 0.9;
    return code ? code : duet_optimizer_create(&r->optimizer, r->params, &options);
}

static int close_rank(struct rank *r, int code) {
    duet_optimizer_free(r->optimizer);
    duet_ddp_free(r->ddp);
    duet_tape_free(r->tape);
    duet_params_free(r->params);
    duet_devices_close(&r->device, 1);
    duet_group_destroy(&r->group);
    return code;
}

static duet_var *forward(duet_tape *t, const duet_tensor *index, int traits) {
    duet_var *x = duet_embedding(t, index, TABLE, -1);
    duet_var *h = duet_batch_norm(t, duet_linear(t, x, FC1_W, FC1_B), BN_W, BN_B, 0, 1e-5, 0.1, 0);
    x = duet_add(t, x, duet_linear(t, duet_relu(t, h), FC2_W, FC2_B));
    x = duet_layer_norm(t, x, 1, (int[]){WIDTH}, NORM_W, NORM_B, 1e-5);
    return duet_linear(t, x, traits & TIED ? TABLE : HEAD, HEAD_B);
}

static int pass(struct rank *r, int number, enum duet_pass kind) {
    int32_t word[SAMPLES], next[SAMPLES];
    const int n = SAMPLES;
    duet_tensor *x = NULL, *y = NULL;
    for (int i = 0; i < n; i++) {
        word[i] = (i * 5 + number * 11 + r->rank * 7) % VOCABULARY;
        next[i] = (word[i] * 3 + 1) % VOCABULARY;
    }
    int code = duet_tensor_create(&x, r->device, DUET_I32, 1, &n, word);
    if (!code) code = duet_tensor_create(&y, r->device, DUET_I32, 1, &n, next);
    if (!code) code = duet_tape_begin(r->tape, r->params, n, kind);
    if (!code) {
        duet_var *scores = forward(r->tape, x, r->job->traits);
        duet_var *loss = duet_cross_entropy(r->tape, scores, y, DUET_MEAN, NULL);
        code = kind == DUET_TRAIN ? duet_backward(r->tape, loss, NULL)
                                  : duet_loss_read(r->tape, loss, &(double){0}, NULL);
    }
    duet_tensor_free(x);
    duet_tensor_free(y);
    return code;
}

static int step(struct rank *r, int number) {
    int code = DUET_OK;
    if (r->job->traits & EVALUATES) code = pass(r, 100 + number, DUET_EVALUATE);
    for (int p = 0; !code && p < r->job->passes; p++)
        code = pass(r, number * r->job->passes + p, DUET_TRAIN);
    if (!code && r->job->traits & CLIPPED) code = duet_clip_grad_norm(r->params, 0.01, NULL);
    return code ? code : duet_optimizer_step(r->optimizer);
}

static int save(const struct rank *r, const char *file) {
    const struct duet_checkpoint all = {
        .params = r->params, .optimizer = r->optimizer, .tape = r->tape};
    return r->sharded || !r->rank ? duet_checkpoint_save(&all, in(file)) : DUET_OK;
}

static int go_back(struct rank *r) {
    struct duet_checkpoint all = {.params = r->params, .optimizer = r->optimizer, .tape = r->tape};
    int code = save(r, "half");
    if (!code) code = duet_barrier(r->group, NULL);
    if (!code) code = step(r, 50);
    return code ? code : duet_checkpoint_load(&all, in("half"));
}

static int train(int number, void *context) {
    struct rank r = *(const struct rank *)context;
    (void)number;
    int code = open_rank(&r);
    if (!code && r.job->passes > 1) code = duet_tape_accumulate(r.tape, r.job->passes);
    for (int i = 0; !code && i < STEPS; i++) {
        code = step(&r, i);
        if (!code && i == 2 && r.job->traits & GOES_BACK) code = go_back(&r);
    }
    if (!code) code = save(&r, r.sharded ? "sharded" : "whole");
    return close_rank(&r, code);
}

Test(api_fsdp, has_the_bits_of_ddp, .timeout = 240, .init = scratch_make, .fini = scratch_remove) {
    static const struct job jobs[] = {
        {2, TIED | GOES_BACK, 1, "adam", {.prefetch = 1}},
        {4, TIED | FROZEN | CLIPPED, 1, "sgd", {.units = "0.0001"}},
        {3, TIED | FROZEN | EVALUATES, 1, "adam", {.units = "0.0001", .prefetch = -1}},
        {3, SYNC_BN | CLIPPED | EVALUATES | GOES_BACK, 1, "adamw", {.shard = DUET_SHARD_GRADIENTS}},
        {2, TIED, 1, "adam", {.units = "table", .prefetch = -1}},
        {2, 0, 1, "adam", {.shard = DUET_SHARD_GRADIENTS, .units = "head.bias", .prefetch = -1}},
        {4, TIED | SYNC_BN, 2, "adam", {.accumulate = 1, .units = "fc1,bn"}},
        {2, TIED | FROZEN | CLIPPED | EVALUATES, 3, "sgd", {.accumulate = 1, .prefetch = 4}},
        {2, CLIPPED | FROZEN, 1, "adadelta", {DUET_SHARD_OPTIMIZER, .units = "table,head"}},
        {4, TIED | FROZEN, 1, "adam", {.no_reshard_after_forward = 1, .units = "norm,fc2"}},
        {1, TIED | FROZEN | CLIPPED, 1, "adam", {.units = "1"}}};
    for (int kind = 0; kind < API_KINDS; kind++)
        for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
            struct rank all = {.job = &jobs[i], .kind = api_kinds[kind]};
            for (all.sharded = 0; all.sharded < 2; all.sharded++)
                cr_assert_eq(duet_spawn(jobs[i].ranks, train, &all), DUET_OK, "%s, job %zu: %s",
                             all.kind, i, duet_error());
            char command[300];
            snprintf(command, sizeof command, "cmp %s %s", in("whole"), in("sharded"));
            cr_assert_eq(system(command), 0, "%s, job %zu", all.kind, i);
        }
}

/* ---- ranks that differ ---- */

/* Rank 1 gives other options than rank 0, and all ranks notice at once. */
static int disagrees(int number, void *context) {
    const struct duet_fsdp_options *options = context;
    struct job job = {2, 0, 1, "sgd", options[number]};
    struct rank r = {.job = &job, .kind = "cpu", .sharded = 1};
    return close_rank(&r, open_rank(&r));
}

Test(api_fsdp, ranks_must_agree, .timeout = 60) {
    static const struct {
        const char *words;
        struct duet_fsdp_options options[2];
    } odd[] = {{"shard is ", {{.units = ""}, {.shard = DUET_SHARD_GRADIENTS}}},
               {"prefetch is ", {{.units = ""}, {.prefetch = 2}}},
               {"no_reshard_after_forward is ", {{.units = ""}, {.no_reshard_after_forward = 1}}},
               {"accumulate is ", {{.units = ""}, {.accumulate = 1}}},
               {"fc1.weight is in unit ", {{.units = "fc1,fc2"}, {.units = "fc2,fc1"}}},
               {"give names of modules", {{.units = "fc1"}, {.units = "fc3"}}}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        cr_assert_eq(duet_spawn(2, disagrees, (void *)odd[i].options), DUET_USAGE, "%s: %s",
                     odd[i].words, duet_error());
        MUST_SAY(odd[i].words);
    }
}
