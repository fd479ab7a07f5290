/* Gives the same advice in words for programs and for the command; see advice.h. */
#include "base/advice.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

static const struct {
    const char *program, *command;
} words[] = {
    {ADVICE_TIMEOUT, "give a longer --timeout"},
    {ADVICE_MORE_MEMORY, "a larger --device-memory"},
    {ADVICE_LESS_MEMORY, "give a smaller --device-memory"},
    {ADVICE_FEWER_DEVICES, "give fewer --devices"},
    {ADVICE_MEMORY_SIZE, "give a size such as --device-memory 2GiB"},
    {ADVICE_CPU, "use --device cpu"},
    {ADVICE_GPU, "use --device cuda"},
    {ADVICE_AUTO, "use --allreduce auto"},
    {ADVICE_FIND_UNUSED, "passing --find-unused-parameters"},
};

const char *error_with_options(void) {
    char text[ERROR_BYTES];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *message = error_message(), *at = strstr(message, words[i].program);
        if (!at) continue;
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - message), message, words[i].command,
                 at + strlen(words[i].program));
        fail(OK, "%s", text);
    }
    return error_message();
}
