/* Numbers in files have a decimal point. printf and strtod follow the locale instead, and a program
 * that uses the library may have set one with a comma (setlocale(LC_ALL, "") in German). So what a
 * program reaches by duet.h reads and writes files, and error texts, between these two calls, which
 * change this thread alone. What runs below duet_command alone (cli/, train/, report/) does not
 * need them, since duet_command changes the locale of the whole process. */
#ifndef BASE_TEXT_NUMBER_H
#define BASE_TEXT_NUMBER_H

#include <locale.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From here on this thread writes and reads numbers as C does. Returns what numbers_end() takes.
 * glibc and musl have this locale ready: nothing is allocated. */
static inline locale_t numbers_of_c(void) {
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

static inline void numbers_end(locale_t before) {
    uselocale(before);
}

#ifdef __cplusplus
}
#endif
#endif
