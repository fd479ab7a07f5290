/* Numbers in files have a decimal point. printf and strtod follow the locale instead, and a program
 * that uses the library may have set one with a comma (setlocale(LC_ALL, "") in German). So the
 * functions of duet.h read and write files and error messages between these two calls, which change
 * only the locale of this thread. Code that only duet_command runs (cli/, train/, report/) does not
 * need them, since duet_command changes the locale of the whole process. */
#ifndef BASE_TEXT_NUMBER_H
#define BASE_TEXT_NUMBER_H

#include <locale.h>

/* From here on this thread writes and reads numbers as in the C locale. Returns the argument for
 * numbers_end(). glibc and musl have this locale built in, so nothing is allocated. */
static inline locale_t numbers_of_c(void) {
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
}

static inline void numbers_end(locale_t before) {
    uselocale(before);
}

#endif
