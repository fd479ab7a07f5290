/* Errors of system calls: the error text names the limit that was hit and says how to raise it. */
#ifndef BASE_SYSTEM_ERROR_H
#define BASE_SYSTEM_ERROR_H

/* What a user can do about an errno value: for EMFILE "raise the limit of open files (ulimit -n)".
 * NULL: no advice. */
const char *system_advice(int error_number);

/* Like fail_errno of base/error.h, with ": " and the advice, if any, appended to the message:
 *     launcher: signalfd: Too many open files: raise the limit of open files (ulimit -n)
 * Returns ERR_MEMORY for ENOMEM, else ERR_FAILED. */
int fail_system(int error_number, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
