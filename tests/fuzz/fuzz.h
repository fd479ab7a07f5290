/* Shared by the fuzz targets. A target is a file fuzz_NAME.c with one function, which gets
 * arbitrary bytes:
 *
 *     int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
 *
 * It passes them to a parser and checks what must hold for any input: refused input causes a
 * one-line error and leaves nothing behind, and accepted input can be used. The sanitizers find
 * crashes, leaks and reads out of bounds. `make fuzz` builds and runs all targets: mk/fuzz.mk. */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process if a check fails; the fuzzer then keeps the input. */
#define MUST(condition)                                                                    \
    do {                                                                                   \
        if (!(condition)) {                                                                \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
            abort();                                                                       \
        }                                                                                  \
    } while (0)

/* An error is one of the codes, with a text of one line. */
static inline void check_error(int code) {
    const char *text = error_message();
    MUST(code > OK && code <= ERR_READER);
    MUST(*text && !strchr(text, '\n'));
}

/* The input as a text that ends with 0, which the caller frees. It may hold zeros inside. */
static inline char *as_text(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1);
    MUST(text);
    if (size) memcpy(text, data, size);
    text[size] = 0;
    return text;
}

/* A regular file without a name that holds the input, for parsers that take a path: `path` has room
 * for 64 bytes. Returns the descriptor, which the caller closes. */
static inline int as_file(const uint8_t *data, size_t size, char *path) {
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    MUST(fd >= 0 && write(fd, data, size) == (ssize_t)size);
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

#endif
