/* Errors: library code returns a code, and only main exits.
 *
 * A function that can fail returns OK (0) or one of the codes below, and leaves a one-line message
 * for the user by calling fail(): "what failed: which value: what to do". Each thread has its own
 * message, as it has its own errno; this is Duet's only thread-local variable. A thread that must
 * report its failure to another thread keeps it in a struct failures that both can read.
 *
 * A function that has acquired nothing yet uses CHECK, which returns. Once it holds something that
 * it must free, it uses CHECK_GOTO, so that every exit passes the clean-up. The clean-up itself
 * uses CHECK_KEEP, which keeps the first error. */
#ifndef BASE_ERROR_H
#define BASE_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

enum { ERROR_BYTES = 1024 }; /* longer error messages are cut */

enum error_code {
    OK = 0,
    ERR_FAILED,  /* failed at run time: exit status 1 */
    ERR_USAGE,   /* an argument is wrong: exit status 2 */
    ERR_CHECK,   /* a check of the result failed: exit status 3 */
    ERR_MEMORY,  /* a device (or the host) is out of memory: exit status 1 */
    ERR_TIMEOUT, /* a wait ran past its deadline: exit status 1 */
    ERR_PEER,    /* another rank failed or died first: exit status 1 */
    /* The process that reads standard output has closed it. The command then ends without a
     * message, as cat does, with exit status 141, which is 128 + SIGPIPE. */
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

/* Formats the thread's error message and returns `code`. The message is one line without a final
 * newline; control characters in it, for example from a file's name, are escaped (text/plain.h).
 *     return fail(ERR_USAGE, "batch size: %d: give at least one sample per device", n); */
int fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Like fail, with ": " and strerror(error_number) appended to the message. */
int fail_errno(int code, int error_number, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The failures of tasks that do not depend on each other. All of them run, and one line says what
 * failed.
 *
 *     struct failures all = {0};
 *     failures_add(&all, write_weights());
 *     failures_add(&all, write_losses());
 *     return failures_end(&all);      // the first code, with the texts joined by "; " */
struct failures {
    int code;
    char text[ERROR_BYTES];
};
void failures_add(struct failures *all, int code);
int failures_end(const struct failures *all);

/* Keeps the failure `code` with its message for another thread, or until failures_end() reports it
 * after a clean-up that may fail, too. */
struct failures failures_of(int code);

/* Keeps `code` if it is the first failure. Returns `code`. */
int failures_first(struct failures *kept, int code);

/* The thread's last error message, or "". Valid until the thread fails again. */
const char *error_message(void);

/* The exit status for a code (docs/design.md section 8): 0, 1, 2, 3 or 128 + SIGPIPE. */
int error_exit_status(int code);

/* Sets *out to NULL, since the result does not exist yet. ERR_USAGE: out itself is NULL. */
#define CHECK_OUT(out)                                                                 \
    do {                                                                               \
        if (!(out)) return fail(ERR_USAGE, "out is NULL: give memory for the result"); \
        *(out) = NULL;                                                                 \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
