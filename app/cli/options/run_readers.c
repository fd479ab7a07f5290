/* Reads the values of a run's options that are neither numbers nor words from a list. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text/parse.h"
#include "cli/options/run_options.h"
#include "models/model_file.h"

/* The command has read a file already (cli/command.c), and put its model in place of the program's
 * own. */
int read_model(const struct option *option, const char *text, void *target) {
    struct run_config *config = target;
    const struct duet_model *own = config->model.options.own;
    const struct model_file *file = model_file_of(own);
    return read_text(option, file && !strcmp(file->path, text) ? own->name : text, target);
}

int read_virtual(const struct option *option, const char *text, void *target) {
    struct run_config *config = target;
    if (strcmp(text, "off")) return read_int(option, text, config);
    config->virtual_devices = VIRTUAL_OFF;
    return OK;
}

/* One size for all devices, or one for each with commas between. */
int read_memory(const struct option *option, const char *text, void *target) {
    struct run_config *config = target;
    int n = 0;
    for (const char *at = text;; at += strcspn(at, ",") + 1) {
        char one[32];
        size_t length = strcspn(at, ",");
        if (n == MAX_DEVICES || length >= sizeof one)
            return fail(ERR_USAGE, "%s: '%.60s': give at most %d sizes such as 64M", option->name,
                        text, MAX_DEVICES);
        snprintf(one, sizeof one, "%.*s", (int)length, at);
        CHECK(parse_size(option->name, one, (uint64_t)option->lowest, (uint64_t)option->highest,
                         &config->device_memory[n++]));
        if (!at[length]) break;
    }
    config->device_memory_count = n;
    return OK;
}

/* Numbers describe the model, and also its samples. */
int read_params(const struct option *option, const char *text, void *target) {
    struct run_config *config = target;
    if (strcmp(config->model.name, "lenet") && strcmp(config->model.name, "described"))
        return fail(ERR_USAGE, "%s: %s: --model %s is given too: give one", option->name, text,
                    config->model.name);
    snprintf(config->model.name, sizeof config->model.name, "described");
    return read_count(option, text, config);
}

int read_shape(const struct option *option, const char *text, void *target) {
    struct run_config *config = target;
    return sample_shape_parse(option->name, text, &config->model.options.sample);
}

/* "10", or "512x30522": tokens of a sample, and classes of each. */
int read_classes(const struct option *option, const char *text, void *target) {
    struct model_options *o = &((struct run_config *)target)->model.options;
    char list[32];
    int64_t sizes[2];
    int count = 0;
    const char *x = strchr(text, 'x');
    o->tokens = 0;
    if (!x) return read_int(option, text, target);
    snprintf(list, sizeof list, "%.*s,%s", (int)(x - text), text, x + 1);
    if (parse_int_list(option->name, list, 1, INT32_MAX, sizes, 2, &count) || count != 2 ||
        sizes[0] > INT32_MAX / sizes[1])
        return fail(ERR_USAGE,
                    "%s: '%.60s': give the tokens of a sample and the classes of each, such "
                    "as 512x30522: at most 2^31 - 1 numbers together",
                    option->name, text);
    o->tokens = (int)sizes[0];
    o->token_classes = (int)sizes[1];
    o->classes = o->tokens * o->token_classes;
    return OK;
}

int read_hidden(const struct option *option, const char *text, void *target) {
    struct run_config *config = target;
    enum { LAYERS = sizeof config->model.options.hidden / sizeof(int), WIDEST = 1000000 };
    int64_t widths[LAYERS];
    CHECK(parse_int_list(option->name, text, 1, WIDEST, widths, LAYERS,
                         &config->model.options.hidden_count));
    for (int i = 0; i < config->model.options.hidden_count; i++)
        config->model.options.hidden[i] = (int)widths[i];
    return OK;
}

/* "dp,fsdp", or "all" */
int read_modes(const struct option *option, const char *text, void *target) {
    struct run_config *config = target;
    char words[64], *rest = words;
    const char *names[MODE_COUNT];
    unsigned modes = 0;
    for (int m = 0; m < MODE_COUNT; m++)
        names[m] = mode_name((enum run_mode)m);
    snprintf(words, sizeof words, "%s", text);
    config->modes = (1U << MODE_COUNT) - 1;
    if (!strcmp(text, "all")) return OK;
    for (char *word; (word = strsep(&rest, ","));) {
        int m;
        CHECK(option_choose(option, word, names, MODE_COUNT, &m));
        modes |= 1U << m;
    }
    if (!config->dry && !(modes & (modes - 1)))
        return fail(ERR_USAGE, "%s: %s: only one mode: give two or more, such as single,fsdp",
                    option->name, text);
    config->modes = modes;
    return OK;
}
