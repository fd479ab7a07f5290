/* Tests misuse of everything except the tape: parameters, optimizers, data, checkpoints, curves,
 * random numbers, groups, DDP, DataParallel, models. */
#include "tests/duet/misuse.h"

#define NAME "duet-misuse"

Test(misuse, parameters_and_optimizers, .timeout = 60) {
    open_all();
    const struct duet_param bias = {"bias", 1, {4}, NULL};
    const struct duet_buffer mean = {"mean", DUET_F32, 1, {4}, 0};
    const struct duet_param_group head = {"bias", 0.1, 0}, none = {NULL, 0.1, 0};
    duet_params *q;
    struct duet_optimizer_options how;
    duet_optimizer *o;
    double norm;
    char file[] = "/tmp/duet-misuse-XXXXXX";
    cr_assert_eq(close(mkstemp(file)), 0);
    CODE(duet_params_create(O(&q), O(d), O(&bias), I(1)));
    CODE(duet_params_register_buffers(O(q), O(&mean), I(1)));
    NOTHING(duet_params_value(O(q), I(0)));
    NOTHING(duet_params_grad(O(q), I(0)));
    NOTHING(duet_params_buffer(O(q), I(0)));
    NOTHING(duet_params_count(O(q)));
    NOTHING(duet_params_has_grad(O(q), I(0)));
    CODE(duet_sgd(O(q), R(0.1), bad(1) ? -9 : 1));
    CODE(duet_clip_grad_norm(O(q), R(1), &norm));
    CODE(duet_zero_grad(O(q)));
    CODE(duet_params_save(O(q), O(file)));
    CODE(duet_params_load(O(q), O(file)));
    CODE(duet_optimizer_defaults(O(&how), O("adam")));
    CODE(duet_optimizer_create(O(&o), O(q), O(&how)));
    CODE(duet_optimizer_add_group(O(o), bad(1) ? &none : O(&head)));
    CODE(duet_optimizer_step(O(o)));
    CODE(duet_optimizer_set_lr(O(o), I(0), R(0.1)));
    struct duet_checkpoint all = {q, o, NULL, 0, 0}, nothing = {NULL, o, NULL, 0, 0};
    CODE(duet_checkpoint_save(bad(1) ? &nothing : O(&all), O(file)));
    CODE(duet_checkpoint_load(bad(1) ? &nothing : O(&all), O(file)));
    SAFE(duet_optimizer_free(O(o)));
    CODE(duet_params_freeze(O(p), O("c")));
    SAFE(duet_params_free(O(q)));
    unlink(file);
    close_all();
}

Test(misuse, data_curves_and_numbers, .timeout = 60) {
    static const float samples[8] = {0};
    static const int32_t answers[8] = {0};
    struct duet_data data = {.count = 8,
                             .rank = 1,
                             .shape = {1},
                             .samples = samples,
                             .labels = answers},
                     empty = data, deep = data, no_shape = data, no_samples = data;
    struct duet_loader_options how = {.batch_size = 4}, no_batch = how, many = how, rank = how;
    struct duet_batch batch;
    duet_dataset *set;
    duet_loader *loader;
    duet_rng *rng;
    float x8[8];
    int32_t order[8];
    char folder[] = "/tmp/duet-misuse-XXXXXX", line[64];
    empty.count = -1, deep.rank = 99, no_shape.shape[0] = -1, no_samples.samples = NULL;
    no_batch.batch_size = 0, many.workers = INT_MAX, rank.rank = 9, rank.world_size = 2;
    cr_assert_not_null(mkdtemp(folder));
    CODE(duet_dataset_open(O(&set), O("synthetic"), NULL, 0));
    SAFE(duet_dataset_free(O(set)));
    CODE(duet_dataset_create(O(&set), bad(1)   ? &empty
                                      : bad(1) ? &deep
                                      : bad(1) ? &no_shape
                                      : bad(1) ? &no_samples
                                               : O(&data)));
    SAFE(duet_dataset_info(O(set)));
    CODE(duet_loader_create(O(&loader), O(set),
                            bad(1)   ? &no_batch
                            : bad(1) ? &many
                            : bad(1) ? &rank
                                     : O(&how)));
    NOTHING(duet_loader_steps(O(loader)));
    CODE(duet_loader_start(O(loader), bad(1) ? -9 : 0));
    CODE(duet_loader_next(O(loader), O(&batch)));
    SAFE(duet_loader_free(O(loader)));
    SAFE(duet_dataset_free(set));
    CODE(duet_rng_create(O(&rng), 1));
    SAFE(duet_rng_normal(O(rng), O(x8), 8, 0, 1));
    SAFE(duet_rng_uniform(O(rng), O(x8), 8, 0, 1));
    CODE(duet_rng_integers(O(rng), I(DUET_I32), O(order), 8, 0, bad(1) ? INT64_MAX : 8));
    SAFE(duet_rng_free(O(rng)));
    snprintf(line, sizeof line, "rm -r %s", folder);
    cr_assert_eq(system(line), 0);
}

static int worked(int rank, void *context) {
    return (void)rank, (void)context, DUET_OK;
}

static int hook(const struct duet_bucket *bucket, void *context) {
    return (void)context, duet_bucket_then(bucket, NULL, NULL, NULL);
}

Test(misuse, groups_and_ddp, .timeout = 60) {
    open_all();
    duet_group *g, *part;
    duet_tensor *all;
    duet_work *work;
    duet_ddp *ddp;
    int first[] = {0}, source, two[] = {2}, wrong[] = {9};
    MUST(duet_tensor_create(&all, d, DUET_F32, 2, (int[]){2, 4}, NULL));
    BAD(duet_spawn(1, worked, NULL)); /* a device is open */
    BAD(duet_spawn(INT_MAX, NULL, NULL));
    BAD(duet_group_init(NULL, 1));
    CODE(duet_group_join(O(&g), O(NAME), bad(1) ? 9 : 0, I(1), R(5)));
    CODE(duet_group_new(O(&part), O(g), bad(1) ? wrong : O(first), I(1), R(0)));
    SAFE(duet_group_destroy(O(&part)));
    SAFE(duet_group_rank(O(g)));
    SAFE(duet_group_size(O(g)));
    SAFE(duet_group_local_rank(O(g)));
    CODE(duet_barrier(O(g), NULL));
    CODE(duet_monitored_barrier(O(g), R(5), 1));
    CODE(duet_broadcast(O(g), O(X2), I(0), NULL));
    CODE(duet_reduce(O(g), O(X2), I(0), I(DUET_SUM), NULL));
    CODE(duet_all_reduce(O(g), O(X2), I(DUET_SUM), NULL));
    CODE(duet_gather(O(g), O(all), O(X2), bad(1) ? wrong : NULL, I(0), NULL));
    CODE(duet_all_gather(O(g), O(all), O(X2), bad(1) ? wrong : NULL, NULL));
    CODE(duet_scatter(O(g), O(all), O(X2), bad(1) ? wrong : NULL, I(0), NULL));
    CODE(duet_reduce_scatter(O(g), O(all), O(X2), bad(1) ? wrong : NULL, I(DUET_SUM), NULL));
    CODE(duet_all_to_all(O(g), O(all), O(X2), bad(1) ? wrong : two, two, NULL));
    BAD(duet_send(O(g), O(X2), I(9), I(0), NULL));
    BAD(duet_recv(O(g), O(X2), I(9), I(0), &source, NULL));
    MUST(duet_all_reduce(g, X2, DUET_SUM, &work));
    CODE(duet_work_wait(O(work)));
    SAFE(duet_work_done(O(work)));
    SAFE(duet_work_source(O(work)));
    SAFE(duet_work_free(O(work)));
    const struct duet_ddp_options plain = {0}, capped = {.bucket_cap_mb = -1},
                                  named = {.allreduce = "?"};
    CODE(duet_convert_sync_batchnorm(O(p), O(g)));
    CODE(duet_ddp_create(O(&ddp), O(g), O(p), bad(1) ? &capped : bad(1) ? &named : &plain));
    CODE(duet_ddp_register_comm_hook(O(ddp), O(hook), NULL));
    BAD(duet_ddp_join(ddp));
    BAD(duet_ddp_join(NULL));
    BAD(duet_bucket_then(NULL, NULL, NULL, NULL));
    BAD(duet_fp16_compress_hook(NULL, NULL));
    BAD(duet_bf16_compress_hook(NULL, NULL));
    VAR(duet_var_to_group(T(), O(g), O(x)));
    VAR(duet_var_all_reduce(T(), O(g), O(x)));
    VAR(duet_var_all_gather(T(), O(g), O(flat)));
    SAFE(duet_ddp_free(O(ddp)));
    const struct duet_fsdp_options ahead = {.prefetch = 9};
    BAD(duet_fsdp_wrap(p, g, &ahead)); /* and p is in use */
    BAD(duet_fsdp_wrap(NULL, g, NULL));
    duet_tensor_free(all), duet_tape_free(t), t = NULL, duet_params_free(p), p = NULL;
    SAFE(duet_group_destroy(O(&g)));
    close_all();
}

static duet_var *forward(duet_tape *tape, duet_var *input, void *context) {
    return (void)context, duet_linear(tape, input, 2, DUET_NO_BIAS);
}

Test(misuse, data_parallel, .timeout = 60) {
    open_all();
    duet_data_parallel *m;
    duet_tensor *outputs[16], *grad, *one_grad[1] = {NULL};
    struct duet_data_parallel_options how = {.input_grad = 1}, far = how, late = how;
    far.output_device = 9, late.timeout_s = NAN;
    CODE(duet_data_parallel_create(O(&m), O(&d), I(1), O(p), O(forward), NULL,
                                   bad(1)   ? &far
                                   : bad(1) ? &late
                                            : &how));
    VAR(duet_data_parallel_call(T(), O(m), O(X36)));
    CODE(duet_data_parallel_forward(O(m), O(&X36), I(1), O(outputs), I(1), I(DUET_TRAIN)));
    one_grad[0] = outputs[0];
    BAD(duet_data_parallel_backward(m, NULL, -9));
    BAD(duet_data_parallel_backward(m, one_grad, INT_MAX));
    CODE(duet_data_parallel_backward(O(m), O(one_grad), I(1)));
    CODE(duet_data_parallel_input_grad(O(m), I(0), O(&grad)));
    duet_tensor_free(outputs[0]), duet_tensor_free(grad);
    SAFE(duet_data_parallel_free(O(m)));
    VAR(duet_var_to(T(), O(t), O(x)));
    CODE(duet_device_profile(O(d), 1));
    CODE(duet_devices_timeline(O(&d), I(1), bad(1) ? NULL : "/dev/null"));
    close_all();
}

static void describe(duet_module *module, void *context) {
    const int two[] = {2, 2}, kept = mutation, is_bad = mutated;
    (void)context;
    duet_module_linear(module, "fc", 36, 10, 1);
    NOTHING(duet_module_sample(O(module)));
    NOTHING(duet_module_classes(O(module)));
    SAFE(duet_module_conv2d(NULL, "x", 1, 1, 1, 1, 0, 1));
    SAFE(duet_module_linear(NULL, "x", 1, 1, 1));
    SAFE(duet_module_batch_norm(NULL, "x", 1, 0, 0));
    SAFE(duet_module_dropout(NULL, "x", 0));
    SAFE(duet_module_dropout2d(NULL, "x", 0));
    SAFE(duet_module_parameter(NULL, "x", 2, two, (struct duet_init){DUET_CONSTANT, 0, 0}));
    NOTHING(duet_module_count(O(module), bad(1) ? 9 : bad(1) ? -9 : 0));
    mutation = kept, mutated = is_bad;
}

/* One call of describe with the k-th wrong layer; each makes the model one that cannot be made. */
static void describe_wrong(duet_module *m, void *context) {
    const int k = *(const int *)context, two[] = {2, 2}, wrong = k % 2 ? INT_MAX : -9;
    const struct duet_init zero = {DUET_CONSTANT, 0, 0}, no_kind = {(enum duet_init_kind)99, 0, 0};
    switch (k / 2) {
    case 0: duet_module_conv2d(m, k % 2 ? NULL : "x", wrong, 1, 1, 1, 0, 1); break;
    case 1: duet_module_conv2d(m, "x", 1, 1, 1, wrong, 0, 1); break;
    case 2: duet_module_linear(m, k % 2 ? NULL : "x", 1, wrong, 1); break;
    case 3: duet_module_batch_norm(m, k % 2 ? NULL : "x", wrong, 0, 0); break;
    case 4: duet_module_dropout(m, k % 2 ? NULL : "x", 2); break;
    case 5: duet_module_dropout2d(m, "x", k % 2 ? NAN : -1); break;
    case 6: duet_module_parameter(m, k % 2 ? NULL : "x", wrong, two, zero); break;
    case 7: duet_module_parameter(m, "x", 2, k % 2 ? NULL : two, k % 2 ? zero : no_kind); break;
    }
}

Test(misuse, models, .timeout = 60) {
    open_all();
    int k;
    duet_params *q;
    const struct duet_model good = {.name = "m", .describe = describe, .forward = forward},
                            bad_one = {.name = "m",
                                       .describe = describe_wrong,
                                       .forward = forward,
                                       .context = &k},
                            nobody = {.name = NULL};
    for (k = 0; k < 16; k++) {
        mutated = 1, mutation = k, doing = "duet_module_* in describe";
        (void)!duet_device_count("nonsense");
        judged_code(duet_params_create_model(&q, d, &bad_one, 10, 0));
    }
    mutation = 0;
    CODE(duet_params_create_model(O(&q), O(d), bad(1) ? &nobody : O(&good), I(10), 0));
    duet_params_free(q);
    SAFE(duet_command(0, NULL, NULL));
    close_all();
}
