/* The header of all tests: Criterion, or the small runner of harness/runner.c with the same macros.
 *
 * Criterion cannot start under ThreadSanitizer (its shared arena collides with the sanitizer's
 * memory map), it does not see a leak that AddressSanitizer reports when a test ends, and it is not
 * installed everywhere. In these cases mk/tests.mk defines HARNESS_PLAIN and links
 * tests/harness/runner.c. A test file reads the same in both:
 *
 *     #include "tests/harness/harness.h"
 *     Test(ring, sums_three_ranks, .timeout = 30) {
 *         cr_assert_eq(got, want, "rank %d got %d", rank, got);        a message is optional
 *     }
 *
 * Each test runs in its own process, so a crash or an endless loop is one failure and the other
 * tests continue. Options of Test: .timeout (seconds), .init, .fini, .signal, .exit_code,
 * .disabled, .description. Macros: cr_assert..., which ends the test; cr_expect..., which does not;
 * cr_skip_test("reason"). Messages are string literals with printf arguments.
 *
 * BUILD_DIR is the folder of this build: BUILD_DIR "/duet" is the command under test. */
#ifndef TESTS_HARNESS_HARNESS_H
#define TESTS_HARNESS_HARNESS_H

#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef BUILD_DIR
#define BUILD_DIR "build"
#endif

/* 1 in sanitizer runs (DUET_TEST_SHORT): tests then use at most 4 ranks and 20 steps. */
static inline int test_short(void) {
    const char *value = getenv("DUET_TEST_SHORT");
    return value && *value && strcmp(value, "0") != 0;
}

/* For tests of processes, each of which has no more threads than in other tests. */
#ifdef __SANITIZE_THREAD__
#define SKIP_UNDER_THREAD() cr_skip_test("ThreadSanitizer sees nothing between processes")
#else
#define SKIP_UNDER_THREAD() (void)0
#endif

/* The seed of what a test draws: DUET_SEED, or always the same one. make soak draws others. */
static inline unsigned long long test_seed(void) {
    const char *given = getenv("DUET_SEED");
    return given ? strtoull(given, NULL, 10) : 1;
}

#ifndef HARNESS_PLAIN

/* Criterion without its asserts, each of which becomes a hundred lines: those below are one call,
 * and a test compiles in two thirds of the time. */
#define CRITERION_ASSERT_H_
#define CRITERION_INTERNAL_ASSERT_H_
#include <criterion/abort.h>
#include <criterion/criterion.h>
#include <criterion/event.h>
#include <criterion/stats.h>
#include <stdarg.h>

__attribute__((format(printf, 5, 6), cold)) static inline void
harness_fail(bool fatal, const char *file, int line, const char *expression, const char *format,
             ...) {
    char words[1024], message[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    snprintf(message, sizeof message, "%s is false.%s", expression, words);
    struct criterion_assert_stats stats = {
        .message = message, .file = file, .line = (unsigned)line};
    criterion_send_assert(&stats);
    if (fatal) criterion_abort_test();
    criterion_continue_test();
}

/* Criterion shows skipped tests only with --verbose; here each is printed with its reason. The name
 * is that of the test, not of a function in a header that skips it. Criterion does not call .fini
 * of a skipped test, which would leave its scratch folder. */
#define cr_skip_test(...)                                                             \
    do {                                                                              \
        fprintf(stderr, "[SKIP] %s::%s: ", criterion_current_test->category,          \
                criterion_current_test->name);                                        \
        fprintf(stderr, __VA_ARGS__);                                                 \
        fputc('\n', stderr);                                                          \
        if (criterion_current_test->data->fini) criterion_current_test->data->fini(); \
        criterion_skip_test("" __VA_ARGS__);                                          \
    } while (0)

#else /* the small runner's side */

struct harness_test {
    const char *suite, *name, *description, *file;
    int line;
    void (*body)(void), (*init)(void), (*fini)(void);
    int signal, exit_code;
    bool disabled;
    double timeout; /* seconds; 0: the runner's default */
    struct harness_test *next;
};

/* Called before main, once per test. */
void harness_add(struct harness_test *test);

/* Prints one failure. `fatal` ends the test by ending the process, so it works from a thread and
 * from a rank that the test forked, too. */
void harness_fail(bool fatal, const char *file, int line, const char *expression,
                  const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Ends the test as skipped. */
void harness_skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#define Test(Suite, Name, ...)                                                         \
    static void Suite##_##Name##_body(void);                                           \
    static struct harness_test Suite##_##Name##_test = {.suite = #Suite,               \
                                                        .name = #Name,                 \
                                                        .file = __FILE__,              \
                                                        .line = __LINE__,              \
                                                        .body = Suite##_##Name##_body, \
                                                        __VA_ARGS__};                  \
    __attribute__((constructor)) static void Suite##_##Name##_add(void) {              \
        harness_add(&Suite##_##Name##_test);                                           \
    }                                                                                  \
    static void Suite##_##Name##_body(void)

#define cr_skip_test(...) harness_skip("" __VA_ARGS__)

#endif

/* With " " before the caller's message the format is a literal that is never empty. */
#define HARNESS_CHECK(fatal, condition, text, ...)                                        \
    do {                                                                                  \
        if (!(condition)) harness_fail(fatal, __FILE__, __LINE__, text, " " __VA_ARGS__); \
    } while (0)
#define HARNESS_COMPARE(fatal, a, op, b, ...) \
    HARNESS_CHECK(fatal, (a)op(b), "(" #a ") " #op " (" #b ")", __VA_ARGS__)
#define HARNESS_STR(fatal, a, op, b, ...)                                                 \
    HARNESS_CHECK(fatal, strcmp((a), (b)) op 0, "(as strings) (" #a ") " #op " (" #b ")", \
                  __VA_ARGS__)
#define HARNESS_FLOAT(fatal, a, b, eps, ...)                       \
    HARNESS_CHECK(fatal, fabs((double)(a) - (double)(b)) <= (eps), \
                  "(" #a ") == (" #b ") within " #eps, __VA_ARGS__)
#define HARNESS_ARR(fatal, a, op, b, bytes, ...)                                                 \
    HARNESS_CHECK(fatal, memcmp((a), (b), (bytes)) op 0, "(as bytes) (" #a ") " #op " (" #b ")", \
                  __VA_ARGS__)

#define cr_assert(c, ...) HARNESS_CHECK(true, c, #c, __VA_ARGS__)
#define cr_assert_not(c, ...) HARNESS_CHECK(true, !(c), "!(" #c ")", __VA_ARGS__)
#define cr_assert_fail(...) HARNESS_CHECK(true, false, "reached", __VA_ARGS__)
#define cr_assert_eq(a, b, ...) HARNESS_COMPARE(true, a, ==, b, __VA_ARGS__)
#define cr_assert_neq(a, b, ...) HARNESS_COMPARE(true, a, !=, b, __VA_ARGS__)
#define cr_assert_lt(a, b, ...) HARNESS_COMPARE(true, a, <, b, __VA_ARGS__)
#define cr_assert_leq(a, b, ...) HARNESS_COMPARE(true, a, <=, b, __VA_ARGS__)
#define cr_assert_gt(a, b, ...) HARNESS_COMPARE(true, a, >, b, __VA_ARGS__)
#define cr_assert_geq(a, b, ...) HARNESS_COMPARE(true, a, >=, b, __VA_ARGS__)
#define cr_assert_null(p, ...) HARNESS_CHECK(true, (p) == NULL, "(" #p ") == NULL", __VA_ARGS__)
#define cr_assert_not_null(p, ...) HARNESS_CHECK(true, (p) != NULL, "(" #p ") != NULL", __VA_ARGS__)
#define cr_assert_str_eq(a, b, ...) HARNESS_STR(true, a, ==, b, __VA_ARGS__)
#define cr_assert_str_neq(a, b, ...) HARNESS_STR(true, a, !=, b, __VA_ARGS__)
#define cr_assert_float_eq(a, b, eps, ...) HARNESS_FLOAT(true, a, b, eps, __VA_ARGS__)
#define cr_assert_arr_eq(a, b, bytes, ...) HARNESS_ARR(true, a, ==, b, bytes, __VA_ARGS__)
#define cr_assert_arr_neq(a, b, bytes, ...) HARNESS_ARR(true, a, !=, b, bytes, __VA_ARGS__)

#define cr_expect(c, ...) HARNESS_CHECK(false, c, #c, __VA_ARGS__)
#define cr_expect_not(c, ...) HARNESS_CHECK(false, !(c), "!(" #c ")", __VA_ARGS__)
#define cr_expect_fail(...) HARNESS_CHECK(false, false, "reached", __VA_ARGS__)
#define cr_expect_eq(a, b, ...) HARNESS_COMPARE(false, a, ==, b, __VA_ARGS__)
#define cr_expect_neq(a, b, ...) HARNESS_COMPARE(false, a, !=, b, __VA_ARGS__)
#define cr_expect_lt(a, b, ...) HARNESS_COMPARE(false, a, <, b, __VA_ARGS__)
#define cr_expect_leq(a, b, ...) HARNESS_COMPARE(false, a, <=, b, __VA_ARGS__)
#define cr_expect_gt(a, b, ...) HARNESS_COMPARE(false, a, >, b, __VA_ARGS__)
#define cr_expect_geq(a, b, ...) HARNESS_COMPARE(false, a, >=, b, __VA_ARGS__)
#define cr_expect_null(p, ...) HARNESS_CHECK(false, (p) == NULL, "(" #p ") == NULL", __VA_ARGS__)
#define cr_expect_not_null(p, ...) \
    HARNESS_CHECK(false, (p) != NULL, "(" #p ") != NULL", __VA_ARGS__)
#define cr_expect_str_eq(a, b, ...) HARNESS_STR(false, a, ==, b, __VA_ARGS__)
#define cr_expect_str_neq(a, b, ...) HARNESS_STR(false, a, !=, b, __VA_ARGS__)
#define cr_expect_float_eq(a, b, eps, ...) HARNESS_FLOAT(false, a, b, eps, __VA_ARGS__)
#define cr_expect_arr_eq(a, b, bytes, ...) HARNESS_ARR(false, a, ==, b, bytes, __VA_ARGS__)
#define cr_expect_arr_neq(a, b, bytes, ...) HARNESS_ARR(false, a, !=, b, bytes, __VA_ARGS__)

/* Aliases. */
#define cr_assert_le cr_assert_leq
#define cr_assert_ge cr_assert_geq
#define cr_expect_le cr_expect_leq
#define cr_expect_ge cr_expect_geq
#endif
