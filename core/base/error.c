/* The error message of each thread, and the exit status of each code. */
#include "base/error.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/text/number.h"
#include "base/text/plain.h"

static _Thread_local char message[ERROR_BYTES];

static void format_message(const char *format, va_list args) {
    char text[sizeof message];        /* formatted here first: an argument may be error_message() */
    locale_t before = numbers_of_c(); /* numbers are written as options take them */
    vsnprintf(text, sizeof text, format, args);
    numbers_end(before);
    text_plain(message, sizeof message, text, sizeof text);
}

int fail(int code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    format_message(format, args);
    va_end(args);
    return code;
}

int fail_errno(int code, int error_number, const char *format, ...) {
    va_list args;
    va_start(args, format);
    format_message(format, args);
    va_end(args);
    size_t used = strlen(message);
    snprintf(message + used, sizeof message - used, ": %s", strerror(error_number));
    return code;
}

void failures_add(struct failures *all, int code) {
    if (!code) return;
    size_t used = strlen(all->text);
    snprintf(all->text + used, sizeof all->text - used, "%s%s", used ? "; " : "", message);
    if (!all->code) all->code = code;
}

int failures_end(const struct failures *all) {
    return all->code ? fail(all->code, "%s", all->text) : OK;
}

struct failures failures_of(int code) {
    struct failures kept = {.code = code};
    if (code) memcpy(kept.text, message, sizeof message);
    return kept;
}

int failures_first(struct failures *kept, int code) {
    if (code && !kept->code) *kept = failures_of(code);
    return code;
}

const char *error_message(void) {
    return message;
}

int error_exit_status(int code) {
    switch (code) {
    case OK: return 0;
    case ERR_USAGE: return 2;
    case ERR_CHECK: return 3;
    case ERR_READER: return 128 + SIGPIPE;
    default: return 1;
    }
}
