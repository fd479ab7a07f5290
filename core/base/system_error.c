/* Reports errors of system calls; see system_error.h. */
#include "base/system_error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

const char *system_advice(int error_number) {
    switch (error_number) {
    case EMFILE: return "raise the limit of open files (ulimit -n)";
    case ENFILE: return "the whole system has too many open files: close some programs";
    case EAGAIN: return "raise the limit of processes (ulimit -u) or of memory (ulimit -v)";
    case EFBIG: return "raise the limit of file sizes (ulimit -f)";
    case ENOMEM: return "free some memory, or raise the limit of memory (ulimit -v)";
    case ENOSPC: return "free some space";
    case EPERM:
    case EACCES:
    case ENOSYS: return "the kernel or a sandbox refuses it: run it outside of the sandbox";
    default: return NULL;
    }
}

int fail_system(int error_number, const char *format, ...) {
    char text[512];
    const char *advice = system_advice(error_number);
    int code = error_number == ENOMEM ? ERR_MEMORY : ERR_FAILED;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return fail(code, "%s: %s%s%s", text, strerror(error_number), advice ? ": " : "",
                advice ? advice : "");
}
