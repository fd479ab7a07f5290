/* Reading the values of flags: see flag_readers.h. A word that is not known gets the nearest one
 * that is. */
#include "cli/flag_readers.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "allreduce/plan.h"
#include "base/error.h"
#include "base/nearest.h"
#include "base/parse.h"
#include "models/sequential.h"
#include "trace/link.h"

static void *member(const struct flag *flag, struct run_config *config) {
    return (char *)config + flag->offset;
}

int read_int(const struct flag *flag, const char *text, struct run_config *config) {
    int64_t value = 0;
    CHECK(parse_int(flag->name, text, (int64_t)flag->lowest, (int64_t)flag->highest, &value));
    *(int *)member(flag, config) = (int)value;
    return OK;
}

int read_number(const struct flag *flag, const char *text, struct run_config *config) {
    return parse_number(flag->name, text, flag->lowest, flag->highest, member(flag, config));
}

int read_text(const struct flag *flag, const char *text, struct run_config *config) {
    if (strlen(text) >= flag->bytes)
        return fail(ERR_USAGE, "%s: %.40s...: give at most %zu characters", flag->name, text,
                    flag->bytes - 1);
    if (!*text) return fail(ERR_USAGE, "%s: the value is empty: give %s", flag->name, flag->value);
    memcpy(member(flag, config), text, strlen(text) + 1);
    return OK;
}

/* The command has read a file already (cli/command.c), and put its model in place of the program's
 * own. */
int read_model(const struct flag *flag, const char *text, struct run_config *config) {
    const struct duet_model *own = config->model_options.own;
    const struct sequential *file = sequential_of(own);
    if (!*text) return fail(ERR_USAGE, "%s: the value is empty: give %s", flag->name, flag->value);
    if (file && !strcmp(file->path, text)) text = own->name;
    if (strlen(text) >= sizeof config->model)
        return fail(ERR_USAGE, "%s: %.40s...: give at most %zu characters", flag->name, text,
                    sizeof config->model - 1);
    memcpy(config->model, text, strlen(text) + 1);
    return OK;
}

int read_on(const struct flag *flag, const char *text, struct run_config *config) {
    (void)text;
    *(int *)member(flag, config) = 1;
    return OK;
}

int read_off(const struct flag *flag, const char *text, struct run_config *config) {
    (void)text;
    *(int *)member(flag, config) = 0;
    return OK;
}

int read_virtual(const struct flag *flag, const char *text, struct run_config *config) {
    if (strcmp(text, "off")) return read_int(flag, text, config);
    config->virtual_devices = VIRTUAL_OFF;
    return OK;
}

/* One size for all devices, or one for each with commas between. */
int read_memory(const struct flag *flag, const char *text, struct run_config *config) {
    int n = 0;
    for (const char *at = text;; at += strcspn(at, ",") + 1) {
        char one[32];
        size_t length = strcspn(at, ",");
        if (n == MAX_DEVICES || length >= sizeof one)
            return fail(ERR_USAGE, "%s: '%.60s': give at most %d sizes such as 64M", flag->name,
                        text, MAX_DEVICES);
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        CHECK(parse_size(flag->name, one, (uint64_t)flag->lowest, (uint64_t)flag->highest,
                         &config->device_memory[n++]));
        if (!at[length]) break;
    }
    config->device_memory_count = n;
    return OK;
}

/* "20" or "20,forward" */
int read_host_serial(const struct flag *flag, const char *text, struct run_config *config) {
    char number[32];
    size_t length = strcspn(text, ",");
    const char *where = text[length] ? text + length + 1 : NULL;
    if (length >= sizeof number || (where && strcmp(where, "forward")))
        return fail(ERR_USAGE, "%s: '%.40s': give microseconds, as 20 or 20,forward", flag->name,
                    text);
    snprintf(number, sizeof number, "%.*s", (int)length, text);
    config->host_serial_forward = where != NULL;
    return parse_number(flag->name, number, flag->lowest, flag->highest, &config->host_serial_us);
}

int read_bytes(const struct flag *flag, const char *text, struct run_config *config) {
    uint64_t *bytes = member(flag, config);
    return parse_size(flag->name, text, (uint64_t)flag->lowest, (uint64_t)flag->highest, bytes);
}

int read_count(const struct flag *flag, const char *text, struct run_config *config) {
    int64_t *count = member(flag, config);
    return parse_count(flag->name, text, (int64_t)flag->lowest, (int64_t)flag->highest, count);
}

/* The model is described by its numbers, and so are its samples. */
int read_params(const struct flag *flag, const char *text, struct run_config *config) {
    if (strcmp(config->model, "lenet") && strcmp(config->model, "described"))
        return fail(ERR_USAGE, "%s: %s: --model %s is given too: give one", flag->name, text,
                    config->model);
    snprintf(config->model, sizeof config->model, "described");
    return read_count(flag, text, config);
}

int read_link(const struct flag *flag, const char *text, struct run_config *config) {
    return link_parse(flag->name, text, &config->link);
}

int read_seed(const struct flag *flag, const char *text, struct run_config *config) {
    return parse_seed(flag->name, text, &config->seed);
}

int read_shape(const struct flag *flag, const char *text, struct run_config *config) {
    return sample_shape_parse(flag->name, text, &config->model_options.sample);
}

int read_hidden(const struct flag *flag, const char *text, struct run_config *config) {
    enum { LAYERS = sizeof config->model_options.hidden / sizeof(int), WIDEST = 1000000 };
    int64_t widths[LAYERS];
    CHECK(parse_int_list(flag->name, text, 1, WIDEST, widths, LAYERS,
                         &config->model_options.hidden_count));
    for (int i = 0; i < config->model_options.hidden_count; i++)
        config->model_options.hidden[i] = (int)widths[i];
    return OK;
}

/* ---- words of a list ---- */

/* Sets *index to the place of `text` among the words that the flag takes. */
static int choose(const struct flag *flag, const char *text, const char *const *words, int count,
                  int *index) {
    for (*index = 0; *index < count; ++*index)
        if (!strcmp(text, words[*index])) return OK;
    return unknown_value(flag->name, text, words, count);
}

#define CHOOSE(flag, text, words, index) \
    choose(flag, text, words, sizeof(words) / sizeof *(words), index)

int read_mode(const struct flag *flag, const char *text, struct run_config *config) {
    const char *words[MODE_COUNT];
    int mode;
    for (mode = 0; mode < MODE_COUNT; mode++)
        words[mode] = mode_name((enum run_mode)mode);
    CHECK(CHOOSE(flag, text, words, &mode));
    config->mode = (enum run_mode)mode;
    return OK;
}

/* Without a value it stands for the first rule. */
int read_join(const struct flag *flag, const char *text, struct run_config *config) {
    static const char *const words[] = {"samples", "initial", "active", "throw"};
    int rule = 0;
    if (*text) CHECK(CHOOSE(flag, text, words, &rule));
    config->join = (enum run_join)(JOIN_SAMPLES + rule);
    return OK;
}

int read_math(const struct flag *flag, const char *text, struct run_config *config) {
    static const char *const words[] = {"own", "library"};
    int library;
    CHECK(CHOOSE(flag, text, words, &library));
    config->cuda_math = library ? DEVICE_MATH_LIBRARY : DEVICE_MATH_OWN;
    return OK;
}

int read_init(const struct flag *flag, const char *text, struct run_config *config) {
    static const char *const words[] = {"default", "d2l"};
    return CHOOSE(flag, text, words, &config->model_options.init_d2l);
}

int read_sampler(const struct flag *flag, const char *text, struct run_config *config) {
    static const char *const words[] = {"distributed", "random"};
    return CHOOSE(flag, text, words, &config->random_sampler);
}

int read_optimizer(const struct flag *flag, const char *text, struct run_config *config) {
    const char *words[OPTIMIZER_COUNT];
    int kind;
    for (kind = 0; kind < OPTIMIZER_COUNT; kind++)
        words[kind] = optimizer_name((enum optimizer_kind)kind);
    CHECK(CHOOSE(flag, text, words, &kind));
    config->optimizer = (enum optimizer_kind)kind;
    return OK;
}

int read_reduce(const struct flag *flag, const char *text, struct run_config *config) {
    static const char *const words[] = {"first", "sharded"};
    return CHOOSE(flag, text, words, &config->sharded_reduce);
}

int read_loss(const struct flag *flag, const char *text, struct run_config *config) {
    const char *words[LOSS_COUNT];
    int kind;
    for (kind = 0; kind < LOSS_COUNT; kind++)
        words[kind] = loss_name((enum loss_kind)kind);
    CHECK(CHOOSE(flag, text, words, &kind));
    config->model_options.loss = (enum loss_kind)kind;
    return OK;
}

int read_algorithm(const struct flag *flag, const char *text, struct run_config *config) {
    const char *words[ALLREDUCE_ALGORITHM_COUNT];
    int a;
    for (a = 0; a < ALLREDUCE_ALGORITHM_COUNT; a++)
        words[a] = allreduce_algorithm_name((enum allreduce_algorithm)a);
    CHECK(CHOOSE(flag, text, words, &a));
    snprintf(config->allreduce, sizeof config->allreduce, "%s", words[a]);
    return OK;
}
