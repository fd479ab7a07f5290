/* Errors: library code returns a code, only main exits.
 *
 * A function that can fail returns OK (0) or one of the codes below and leaves one line of text
 * for the user with fail(): "what failed: which value: what to do". The text is the calling
 * thread's own, as errno is (the one thread-local of the house); a thread that must hand its
 * failure to another copies error_message() into memory of its own.
 *
 * A function that has acquired nothing uses CHECK. Once it holds something to give back it may
 * only use CHECK_GOTO, so that every exit passes the clean-up. Clean-up itself uses CHECK_KEEP:
 * the first error wins. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

enum error_code {
    OK = 0,
    ERR_FAILED,  /* failed at run time: exit status 1 */
    ERR_USAGE,   /* the user's words are wrong: exit status 2 */
    ERR_CHECK,   /* a check of the result failed: exit status 3 */
    ERR_MEMORY,  /* a device (or the host) is out of memory: exit status 1 */
    ERR_TIMEOUT, /* a wait ran past its deadline: exit status 1 */
    ERR_PEER,    /* another rank failed or died first: exit status 1 */
    /* who read standard output has gone (SIGPIPE): the command ends without a word, as cat does:
     * 141 */
    ERR_READER,
};

#define CHECK(call)                          \
    do {                                     \
        int check_code_ = (call);            \
        if (check_code_) return check_code_; \
    } while (0)

#define CHECK_GOTO(call, code, label) \
    do {                              \
        (code) = (call);              \
        if (code) goto label;         \
    } while (0)

#define CHECK_KEEP(call, code)                            \
    do {                                                  \
        int check_code_ = (call);                         \
        if (check_code_ && !(code)) (code) = check_code_; \
    } while (0)

/* Formats the thread's error text (one line, no newline at its end) and returns `code`:
 *     return fail(ERR_USAGE, "batch size: %d: give at least one sample per device", n);      */
int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* As fail, and ": " with strerror(error_number) is put behind the text. */
int fail_errno(int code, int error_number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The thread's last error text; "" if none. Valid until the thread fails again. */
const char *error_message(void);

/* The exit status of a code, docs/design.md section 8: 0, 1, 2, 3, or 128 + SIGPIPE. */
int error_exit_status(int code);

#ifdef __cplusplus
}
#endif
#endif
