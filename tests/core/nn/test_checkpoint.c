/* Checkpoints of a program: 2 steps, a checkpoint, a new program that loads it, and 2 more steps
 * give the bits of 4 steps, for every optimizer, and for two ranks. The command's checkpoints can
 * also be loaded. The file also tests zero_grad and what is refused. */
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/duet/shared.h"

enum { SAMPLES = 7, IN = 6, OUT = 5, STEPS = 4, NUMBERS = OUT * IN + 3 * OUT };

/* Dropout and a batch_norm: masks follow from the number of the pass, statistics are buffers. */
struct program {
    duet_device *device;
    duet_params *params;
    duet_optimizer *optimizer;
    duet_tape *tape;
    duet_tensor *x, *y;
};

static void program_open(struct program *p, const char *kind,
                         const struct duet_optimizer_options *options) {
    static float host[SAMPLES * IN], weight[OUT * IN], ones[OUT] = {1, 1, 1, 1, 1};
    static int32_t labels[SAMPLES];
    const struct duet_param params[] = {{"fc.weight", 2, {OUT, IN}, weight},
                                        {"fc.bias", 1, {OUT}, NULL},
                                        {"bn.weight", 1, {OUT}, ones},
                                        {"bn.bias", 1, {OUT}, NULL}};
    const struct duet_buffer buffers[] = {{"bn.running_mean", DUET_F32, 1, {OUT}, 0},
                                          {"bn.running_var", DUET_F32, 1, {OUT}, 1},
                                          {"bn.num_batches_tracked", DUET_I64, 0, {0}, 0}};
    for (int i = 0; i < SAMPLES * IN; i++)
        host[i] = (float)(i * 37 % 101 - 50) / 40;
    for (int i = 0; i < OUT * IN; i++)
        weight[i] = (float)(i * 53 % 97 - 48) / 90;
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i % OUT;
    MUST(duet_devices_open(&p->device, 1, kind, api_memory(kind)));
    MUST(duet_params_create(&p->params, p->device, params, 4));
    MUST(duet_params_register_buffers(p->params, buffers, 3));
    MUST(duet_tape_create(&p->tape, p->device));
    MUST(duet_tensor_create(&p->x, p->device, DUET_F32, 2, (int[]){SAMPLES, IN}, host));
    MUST(duet_tensor_create(&p->y, p->device, DUET_I32, 1, (int[]){SAMPLES}, labels));
    p->optimizer = NULL;
    if (options) MUST(duet_optimizer_create(&p->optimizer, p->params, options));
}

static void program_close(struct program *p) {
    duet_tensor_free(p->x), duet_tensor_free(p->y);
    duet_tape_free(p->tape);
    duet_optimizer_free(p->optimizer);
    duet_params_free(p->params);
    duet_devices_close(&p->device, 1);
}

/* The learning rate is set before steps 0 and 2 alone, so a new program has to get it back. */
static void train(struct program *p, double lr, int64_t first, int64_t last) {
    for (int64_t step = first; step < last; step++) {
        if (p->optimizer && step % 3 == 0)
            MUST(duet_optimizer_set_lr(p->optimizer, 0, lr * pow(.7, (double)step)));
        MUST(duet_tape_begin(p->tape, p->params, SAMPLES, DUET_TRAIN));
        duet_var *h = duet_dropout(p->tape, duet_input(p->tape, p->x), .25);
        h = duet_batch_norm(p->tape, duet_linear(p->tape, h, 0, 1), 2, 3, 0, 1e-5, .1, 0);
        MUST(duet_backward(p->tape, duet_cross_entropy(p->tape, h, p->y, DUET_MEAN, NULL), NULL));
        if (p->optimizer)
            MUST(duet_optimizer_step(p->optimizer));
        else
            MUST(duet_sgd(p->params, lr, 1));
    }
}

struct numbers {
    float values[NUMBERS], running[2 * OUT];
    int64_t batches;
};

static void read_numbers(struct program *p, struct numbers *n) {
    float *to = n->values;
    for (int i = 0; i < 4; to += duet_tensor_count(duet_params_value(p->params, i++)))
        MUST(duet_tensor_read(duet_params_value(p->params, i), to));
    for (int i = 0; i < 2; i++)
        MUST(duet_tensor_read(duet_params_buffer(p->params, i), n->running + i * OUT));
    MUST(duet_tensor_read(duet_params_buffer(p->params, 2), &n->batches));
}

static void file_name(char name[64]) {
    snprintf(name, 64, "/tmp/duet-checkpoint-%d", (int)getpid());
}

static void check_resume(const char *kind, const struct duet_optimizer_options *o) {
    struct program p;
    struct numbers want = {.batches = 0}, got = {.batches = 0};
    double lr = o ? o->lr : .1;
    char file[64];
    file_name(file);
    program_open(&p, kind, o);
    train(&p, lr, 0, STEPS);
    read_numbers(&p, &want);
    program_close(&p);
    program_open(&p, kind, o);
    train(&p, lr, 0, STEPS / 2);
    struct duet_checkpoint c = {
        .params = p.params, .optimizer = p.optimizer, .tape = p.tape, .epoch = 3, .step = 2};
    MUST(duet_checkpoint_save(&c, file));
    program_close(&p);
    program_open(&p, kind, o);
    train(&p, lr, 0, 1); /* the new program's state is all replaced */
    c = (struct duet_checkpoint){.params = p.params, .optimizer = p.optimizer, .tape = p.tape};
    MUST(duet_checkpoint_load(&c, file));
    cr_assert(c.epoch == 3 && c.step == 2);
    train(&p, lr, c.step, STEPS);
    read_numbers(&p, &got);
    cr_assert(!memcmp(&got, &want, sizeof want), "%s, %s", kind, o ? o->name : "duet_sgd");
    MUST(duet_params_load(p.params, file)); /* other programs read it as weights */
    program_close(&p);
    unlink(file);
}

Test(api_checkpoint, resumed_training_has_the_same_bits, .timeout = 60) {
    static const char *const names[] = {"sgd", "adadelta", "adam", "adamw"};
    for (int k = 0; k < API_KINDS; k++) {
        struct duet_optimizer_options o;
        for (int i = 0; i < 4; i++) {
            MUST(duet_optimizer_defaults(&o, names[i]));
            o.lr = .05;
            check_resume(api_kinds[k], &o);
        }
        MUST(duet_optimizer_defaults(&o, "sgd"));
        o.momentum = .9, o.nesterov = 1, o.weight_decay = .01;
        check_resume(api_kinds[k], &o);
        o.nesterov = 0, o.dampening = .5; /* the first momentum is the whole gradient */
        check_resume(api_kinds[k], &o);
        check_resume(api_kinds[k], NULL);
    }
}

/* ---- two ranks with a duet_ddp: rank 0 saves, both load ---- */

enum { RANKS = 2 };

struct ranks {
    char file[64];
    int64_t first, last; /* steps */
    int save, load;
    struct numbers numbers[RANKS];
};

static int train_rank(int rank, void *context) {
    struct ranks *all = context;
    struct duet_optimizer_options o;
    struct program p;
    duet_group *group = NULL;
    duet_ddp *ddp = NULL;
    int code;
    MUST(duet_optimizer_defaults(&o, "adam"));
    program_open(&p, "cpu", &o);
    struct duet_checkpoint c = {.params = p.params, .optimizer = p.optimizer, .tape = p.tape};
    TRY(duet_group_init(&group, 20));
    TRY(duet_ddp_create(&ddp, group, p.params, NULL));
    if (all->load) TRY(duet_checkpoint_load(&c, all->file));
    HOLDS(c.step == all->first);
    if (rank) TRY(duet_tensor_scale(p.x, .5f)); /* data of its own */
    train(&p, .05, all->first, all->last);
    c.step = all->last;
    if (all->save && rank == 0) TRY(duet_checkpoint_save(&c, all->file));
    read_numbers(&p, &all->numbers[rank]);
out:
    duet_ddp_free(ddp);
    duet_group_destroy(&group);
    program_close(&p);
    return code;
}

Test(api_checkpoint, ranks_go_on_with_the_same_bits, .timeout = 60) {
    struct ranks *all =
        mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct numbers whole[RANKS];
    cr_assert_neq((void *)all, MAP_FAILED);
    file_name(all->file);
    all->last = STEPS;
    MUST(duet_spawn(RANKS, train_rank, all));
    memcpy(whole, all->numbers, sizeof whole);
    cr_assert_arr_eq(whole[0].values, whole[1].values, sizeof whole[0].values);
    all->last = 2, all->save = 1;
    MUST(duet_spawn(RANKS, train_rank, all));
    cr_assert_arr_neq(whole[0].values, all->numbers[0].values, sizeof whole[0].values);
    all->first = 2, all->last = STEPS, all->save = 0, all->load = 1;
    MUST(duet_spawn(RANKS, train_rank, all));
    for (int r = 0; r < RANKS; r++) {
        cr_assert_arr_eq(all->numbers[r].values, whole[r].values, sizeof whole[r].values);
        cr_assert(r || !memcmp(all->numbers[r].running, whole[r].running, sizeof whole->running));
    }
    unlink(all->file);
    munmap(all, sizeof *all);
}

/* A program goes on from a checkpoint of `duet train`. */
Test(api_checkpoint, the_commands_checkpoint_is_read, .timeout = 60) {
    static const struct duet_param params[] = {{"fc.weight", 2, {10, 10}, NULL},
                                               {"fc.bias", 1, {10}, NULL}};
    char file[64], command[512];
    struct duet_optimizer_options o;
    duet_device *device;
    duet_params *p;
    duet_optimizer *optimizer;
    float before[100], after[100];
    file_name(file);
    snprintf(command, sizeof command,
             "%s/duet train --model simple --dataset random --samples 64 --batch-size 32 --steps 2 "
             "--mode single --optimizer adam --device cpu --quiet --checkpoint %s >/dev/null",
             BUILD_DIR, file);
    cr_assert_eq(system(command), 0);
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    MUST(duet_params_create(&p, device, params, 2));
    MUST(duet_optimizer_defaults(&o, "adam"));
    MUST(duet_optimizer_create(&optimizer, p, &o));
    struct duet_checkpoint c = {.params = p, .optimizer = optimizer};
    MUST(duet_checkpoint_load(&c, file));
    cr_assert_eq(c.step, 2);
    MUST(duet_tensor_read(duet_params_value(p, 0), before));
    MUST(duet_optimizer_step(optimizer)); /* the gradient is 0, but Adam's mean is not */
    MUST(duet_tensor_read(duet_params_value(p, 0), after));
    int moved = 0;
    for (int i = 0; i < 100; i++)
        moved += before[i] != after[i];
    cr_assert_gt(moved, 90);
    duet_optimizer_free(optimizer);
    duet_params_free(p);
    duet_devices_close(&device, 1);
    unlink(file);
}

/* Two accumulated passes, with the first one's sum dropped, equal the second alone. */
Test(api_checkpoint, zero_grad_drops_what_was_added_up, .timeout = 30) {
    struct program p;
    float alone[OUT * IN], after[OUT * IN], zeros[OUT * IN] = {0};
    for (int k = 0; k < API_KINDS; k++) {
        program_open(&p, api_kinds[k], NULL);
        duet_tensor *grad = duet_params_grad(p.params, 0);
        for (int passes = 1; passes <= 2; passes++) {
            MUST(duet_tape_accumulate(p.tape, passes));
            for (int pass = 0; pass < passes; pass++) {
                MUST(duet_tape_begin(p.tape, p.params, SAMPLES, DUET_TRAIN));
                duet_var *y = duet_linear(p.tape, duet_input(p.tape, p.x), 0, 1);
                MUST(duet_backward(p.tape, duet_cross_entropy(p.tape, y, p.y, DUET_MEAN, NULL),
                                   NULL));
                if (pass + 1 == passes) break;
                MUST(duet_zero_grad(p.params));
            }
            MUST(duet_tensor_read(grad, passes == 1 ? alone : after));
        }
        cr_assert_arr_eq(after, alone, sizeof alone);
        cr_assert_arr_neq(alone, zeros, sizeof alone);
        MUST(duet_zero_grad(p.params));
        MUST(duet_tensor_read(grad, after));
        cr_assert_arr_eq(after, zeros, sizeof zeros);
        program_close(&p);
    }
}

/* Every file that is saved can be loaded. */
Test(api_checkpoint, the_longest_name_and_the_largest_numbers, .timeout = 30) {
    const struct duet_optimizer_options sgd = {"sgd", .lr = FLT_MAX, .momentum = .9};
    char file[64], name[201];
    duet_device *device;
    struct duet_checkpoint c = {.epoch = INT_MAX, .step = INT64_MAX};
    memset(name, 'x', 200), name[200] = 0;
    file_name(file);
    MUST(duet_devices_open(&device, 1, "cpu", api_memory("cpu")));
    MUST(duet_params_create(&c.params, device, &(struct duet_param){name, 1, {2}, NULL}, 1));
    MUST(duet_optimizer_create(&c.optimizer, c.params, &sgd));
    MUST(duet_checkpoint_save(&c, file));
    c.epoch = 0, c.step = 0;
    MUST(duet_checkpoint_load(&c, file));
    cr_assert(c.epoch == INT_MAX && c.step == INT64_MAX);
    duet_optimizer_free(c.optimizer);
    duet_params_free(c.params);
    duet_devices_close(&device, 1);
    unlink(file);
}

/* ---- misuse ---- */

static struct duet_optimizer_options options_of(const char *name) {
    struct duet_optimizer_options o;
    MUST(duet_optimizer_defaults(&o, name));
    return o;
}

Test(api_checkpoint, what_is_refused, .timeout = 30) {
    struct program p, other;
    struct numbers before = {.batches = 0}, after = {.batches = 0};
    struct duet_optimizer_options adam = options_of("adam"), sgd = options_of("sgd"),
                                  momentum = sgd;
    char file[64];
    file_name(file);
    momentum.momentum = .9;
    program_open(&p, "cpu", &adam);
    program_open(&other, "cpu", &sgd);
    struct duet_checkpoint c = {.params = p.params, .optimizer = p.optimizer, .tape = p.tape},
                           bad = c;
    MUST_FAIL(duet_checkpoint_save(&c, NULL), DUET_USAGE, "no file was given");
    MUST_FAIL(duet_checkpoint_load(&c, NULL), DUET_USAGE, "no file was given");
    bad.params = NULL;
    MUST_FAIL(duet_checkpoint_save(&bad, file), DUET_USAGE, "no parameters were given");
    bad = c, bad.optimizer = other.optimizer;
    MUST_FAIL(duet_checkpoint_save(&bad, file), DUET_USAGE, "optimizer updates other parameters");
    bad = c, bad.tape = other.tape;
    MUST_FAIL(duet_checkpoint_load(&bad, file), DUET_USAGE, "give both one device");
    bad = c, bad.epoch = -1;
    MUST_FAIL(duet_checkpoint_save(&bad, file), DUET_USAGE, "both count from 0");
    MUST_FAIL(duet_checkpoint_save(&c, "/nowhere/x"), DUET_FAILED, "/nowhere");
    MUST_FAIL(duet_checkpoint_load(&c, "/nowhere/x"), DUET_FAILED, "/nowhere");
    MUST(duet_params_save(p.params, file));
    MUST_FAIL(duet_checkpoint_load(&c, file), DUET_FAILED, "not a checkpoint");
    /* another optimizer, another momentum, none at all */
    train(&other, .1, 0, 2);
    bad = (struct duet_checkpoint){.params = other.params, .optimizer = other.optimizer};
    MUST(duet_checkpoint_save(&bad, file));
    read_numbers(&p, &before);
    MUST_FAIL(duet_checkpoint_load(&c, file), DUET_USAGE,
              "the optimizer sgd, this optimizer is adam");
    read_numbers(&p, &after);
    cr_assert(!memcmp(&before, &after, sizeof before), "nothing has changed");
    duet_optimizer_free(other.optimizer);
    MUST(duet_optimizer_create(&other.optimizer, other.params, &momentum));
    bad.optimizer = other.optimizer;
    MUST_FAIL(duet_checkpoint_load(&bad, file), DUET_FAILED, "momentum_buffer");
    train(&other, .1, 0, 1);
    MUST(duet_checkpoint_save(&bad, file));
    duet_optimizer_free(other.optimizer);
    MUST(duet_optimizer_create(&other.optimizer, other.params, &sgd));
    bad.optimizer = other.optimizer;
    MUST_FAIL(duet_checkpoint_load(&bad, file), DUET_USAGE, "with momentum");
    bad.optimizer = NULL;
    MUST(duet_checkpoint_save(&bad, file));
    MUST_FAIL(duet_checkpoint_load(&c, file), DUET_USAGE, "no optimizer");
    /* half of an update */
    MUST(duet_tape_accumulate(p.tape, 2));
    MUST(duet_tape_begin(p.tape, p.params, SAMPLES, DUET_TRAIN));
    duet_var *scores = duet_linear(p.tape, duet_input(p.tape, p.x), 0, 1);
    MUST(duet_backward(p.tape, duet_cross_entropy(p.tape, scores, p.y, DUET_MEAN, NULL), NULL));
    MUST_FAIL(duet_checkpoint_save(&c, file), DUET_USAGE, "pass 1 of 2 of an update");
    cr_assert_null(strchr(duet_error(), '\n'));
    program_close(&p);
    program_close(&other);
    unlink(file);
}
