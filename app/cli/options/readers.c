/* Reads the value of an option, with one function for each type of member. See option.h. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text/nearest.h"
#include "base/text/parse.h"
#include "cli/options/option.h"

void *option_member(const struct option *option, void *target) {
    return (char *)target + option->offset;
}

static int refuse_empty(const struct option *option, const char *text) {
    if (*text) return OK;
    return fail(ERR_USAGE, "%s: the value is empty: give %s", option->name, option->value);
}

int read_on(const struct option *option, const char *text, void *target) {
    (void)text;
    *(int *)option_member(option, target) = 1;
    return OK;
}

int read_off(const struct option *option, const char *text, void *target) {
    (void)text;
    *(int *)option_member(option, target) = 0;
    return OK;
}

int read_int(const struct option *option, const char *text, void *target) {
    int64_t value = 0;
    CHECK(parse_int(option->name, text, (int64_t)option->lowest, (int64_t)option->highest, &value));
    if (option->bytes == sizeof value)
        *(int64_t *)option_member(option, target) = value;
    else
        *(int *)option_member(option, target) = (int)value;
    return OK;
}

int read_number(const struct option *option, const char *text, void *target) {
    return parse_number(option->name, text, option->lowest, option->highest,
                        option_member(option, target));
}

int read_seed(const struct option *option, const char *text, void *target) {
    return parse_seed(option->name, text, option_member(option, target));
}

int read_bytes(const struct option *option, const char *text, void *target) {
    return parse_size(option->name, text, (uint64_t)option->lowest, (uint64_t)option->highest,
                      option_member(option, target));
}

int read_count(const struct option *option, const char *text, void *target) {
    return parse_count(option->name, text, (int64_t)option->lowest, (int64_t)option->highest,
                       option_member(option, target));
}

int read_text(const struct option *option, const char *text, void *target) {
    if (strlen(text) >= option->bytes)
        return fail(ERR_USAGE, "%s: %.40s...: give at most %zu characters", option->name, text,
                    option->bytes - 1);
    CHECK(refuse_empty(option, text));
    memcpy(option_member(option, target), text, strlen(text) + 1);
    return OK;
}

int read_word(const struct option *option, const char *text, void *target) {
    CHECK(refuse_empty(option, text));
    *(const char **)option_member(option, target) = text;
    return OK;
}

int read_nothing(const struct option *option, const char *text, void *target) {
    (void)option, (void)text, (void)target;
    return OK;
}

int option_choose(const struct option *option, const char *text, const char *const *words,
                  int count, int *index) {
    for (*index = 0; *index < count; ++*index)
        if (!strcmp(text, words[*index])) return OK;
    return unknown_value(option->name, text, words, count);
}

int read_choice(const struct option *option, const char *text, void *target) {
    enum { MOST = 16 };
    char all[256], *save = NULL;
    const char *words[MOST];
    int count = 0, index;
    snprintf(all, sizeof all, "%s", option->value);
    for (char *word = strtok_r(all, "|", &save); word && count < MOST;
         word = strtok_r(NULL, "|", &save))
        words[count++] = word;
    CHECK(option_choose(option, text, words, count, &index));
    if (option->bytes == sizeof index)
        *(int *)option_member(option, target) = index;
    else
        snprintf(option_member(option, target), option->bytes, "%s", text);
    return OK;
}

int read_precision(const struct option *option, const char *text, void *target) {
    if (!strcmp(text, "bf16") || !strcmp(text, "fp16"))
        return fail(ERR_USAGE, "--precision: %s: give amp: autocast to it, with float32 weights",
                    text);
    return read_choice(option, text, target);
}
