/* Parameter groups: an optimizer with groups gives the bits of several optimizers, one for each
 * group with its own rate and weight decay; a parameter without a gradient also counts its own
 * updates there; checkpoints restore the rates. */
#include <unistd.h>

#include "tests/duet/shared.h"

enum { BACK, BACK_BIAS, HEAD, HEAD_BIAS, PARAMS, GROUPS = 3 };
enum { K = 3, H = 4, LARGEST = H * K, STEPS = 5 };
static const char *const kinds[] = {"sgd", "adadelta", "adam", "adamw"};

static const struct duet_param shapes[PARAMS] = {{"back.weight", 2, {H, K}, NULL},
                                                 {"back.bias", 1, {H}, NULL},
                                                 {"head.weight", 2, {K, H}, NULL},
                                                 {"head.bias", 1, {K}, NULL}};
/* The group of each, its rate and its weight decay; the rate of group 0 changes in step 2. */
static const int group_of[PARAMS] = {0, 2, 1, 1};
static const struct duet_param_group groups[] = {{"head", 0.03, -1}, {"*", -1, 0}, {"1d", -1, 0}};
static const double rates[GROUPS] = {0.01, 0.03, 0.01}, decays[GROUPS] = {0.1, 0.1, 0};

static int options_of(const char *kind, int group, struct duet_optimizer_options *o) {
    int code = duet_optimizer_defaults(o, kind);
    o->lr = rates[group];
    o->weight_decay = decays[group];
    if (!strcmp(kind, "sgd")) o->momentum = 0.9;
    return code;
}

static duet_params *make_params(duet_device *device) {
    struct duet_param params[PARAMS];
    float values[PARAMS][LARGEST];
    duet_params *made;
    memcpy(params, shapes, sizeof shapes);
    for (int i = 0; i < PARAMS; i++) {
        for (int k = 0; k < LARGEST; k++)
            values[i][k] = 0.25f * (float)((k * 7 + i * 3) % 9 - 4);
        params[i].values = values[i];
    }
    MUST(duet_params_create(&made, device, params, PARAMS));
    return made;
}

static duet_optimizer *make_ours(duet_params *params, const char *kind) {
    struct duet_optimizer_options o;
    duet_optimizer *made;
    MUST(options_of(kind, 0, &o));
    MUST(duet_optimizer_create(&made, params, &o));
    MUST(duet_optimizer_add_group(made, &groups[0]));
    MUST(duet_optimizer_add_group(made, &groups[2]));
    return made;
}

/* Gradients of the step; `only` >= 0: of parameters of that group alone. In step 1 the bias of the
 * backbone and the weight of the head have none. */
static void write_grads(duet_params *params, int step, int only) {
    float grad[LARGEST];
    MUST(duet_zero_grad(params));
    for (int i = 0; i < PARAMS; i++) {
        if ((only >= 0 && group_of[i] != only) || (step == 1 && (i == BACK_BIAS || i == HEAD)))
            continue;
        for (int k = 0; k < LARGEST; k++)
            grad[k] = (float)((k * 5 + i + step * 3) % 7 - 3) / 4;
        MUST(duet_tensor_write(duet_params_grad(params, i), grad));
    }
}

static int same(duet_tensor *a, duet_tensor *b) {
    float x[LARGEST] = {0}, y[LARGEST] = {0};
    return !duet_tensor_read(a, x) && !duet_tensor_read(b, y) && !memcmp(x, y, sizeof x);
}

static void save_and_load(duet_params *params, duet_optimizer **optimizer, const char *kind) {
    char file[64];
    struct duet_optimizer_options o;
    duet_optimizer *other;
    snprintf(file, sizeof file, "/tmp/duet_groups_%d", (int)getpid());
    struct duet_checkpoint c = {.params = params, .optimizer = *optimizer};
    MUST(duet_checkpoint_save(&c, file));
    MUST(options_of(kind, 0, &o));
    MUST(duet_optimizer_create(&other, params, &o));
    c.optimizer = other;
    MUST_FAIL(duet_checkpoint_load(&c, file), DUET_USAGE, "2 parameter groups");
    MUST(duet_optimizer_add_group(other, &groups[0]));
    MUST(duet_optimizer_add_group(other, &groups[2]));
    MUST(duet_optimizer_set_lr(other, 1, 77));
    MUST(duet_checkpoint_load(&c, file));
    unlink(file);
    duet_optimizer_free(*optimizer);
    *optimizer = other;
}

Test(api_groups, give_the_bits_of_an_optimizer_for_each, .timeout = 60) {
    for (int d = 0; d < API_KINDS; d++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            duet_device *device;
            MUST(duet_devices_open(&device, 1, api_kinds[d], 2 * api_memory(api_kinds[d])));
            duet_params *ours = make_params(device), *judged = make_params(device);
            duet_optimizer *optimizer = make_ours(ours, kinds[k]), *judge[GROUPS];
            for (int g = 0; g < GROUPS; g++) {
                struct duet_optimizer_options o;
                MUST(options_of(kinds[k], g, &o));
                MUST(duet_optimizer_create(&judge[g], judged, &o));
            }
            for (int step = 0; step < STEPS; step++) {
                if (step == 2) MUST(duet_optimizer_set_lr(optimizer, 0, 0.02));
                if (step == 2) MUST(duet_optimizer_set_lr(judge[0], 0, 0.02));
                if (step == 2) MUST(duet_optimizer_set_lr(judge[2], 0, 0.02));
                if (step == 3) MUST(duet_optimizer_set_lr(optimizer, 1, 0.5));
                if (step == 3) MUST(duet_optimizer_set_lr(judge[1], 0, 0.5));
                write_grads(ours, step, -1);
                MUST(duet_optimizer_step(optimizer));
                for (int g = 0; g < GROUPS; g++) {
                    write_grads(judged, step, g);
                    MUST(duet_optimizer_step(judge[g]));
                }
                for (int i = 0; i < PARAMS; i++)
                    cr_expect(same(duet_params_value(ours, i), duet_params_value(judged, i)),
                              "%s, %s: step %d, %s", api_kinds[d], kinds[k], step, shapes[i].name);
                if (step == 3) save_and_load(ours, &optimizer, kinds[k]);
            }
            for (int g = 0; g < GROUPS; g++)
                duet_optimizer_free(judge[g]);
            duet_optimizer_free(optimizer);
            duet_params_free(ours), duet_params_free(judged);
            duet_devices_close(&device, 1);
        }
}

Test(api_groups, misuse_is_told, .timeout = 30) {
    duet_device *device;
    MUST(duet_devices_open(&device, 1, "cpu", API_MEMORY));
    duet_params *params = make_params(device);
    MUST(duet_params_freeze(params, "back"));
    duet_optimizer *o;
    struct duet_optimizer_options options;
    MUST(options_of("adam", 0, &options));
    MUST(duet_optimizer_create(&o, params, &options));
    MUST_FAIL(duet_optimizer_add_group(o, &(struct duet_param_group){"back", 1, -1}), DUET_USAGE,
              "'back': no trained parameter");
    MUST_FAIL(duet_optimizer_add_group(o, &(struct duet_param_group){"hea", 1, -1}), DUET_USAGE,
              "'hea'");
    MUST(duet_optimizer_add_group(o, &groups[1]));
    MUST_FAIL(duet_optimizer_add_group(o, &groups[0]), DUET_USAGE, "outside earlier groups");
    MUST_FAIL(duet_optimizer_set_lr(o, 2, 1), DUET_USAGE, "group 2");
    MUST_FAIL(duet_optimizer_set_lr(o, 1, -1), DUET_USAGE, "learning rate");
    duet_optimizer_free(o);
    duet_params_free(params);
    duet_devices_close(&device, 1);
}
