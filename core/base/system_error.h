/* Errors of system calls: the error text names the limit that was hit and says how to raise it. */
#ifndef BASE_SYSTEM_ERROR_H
#define BASE_SYSTEM_ERROR_H

/* What a user can do about an errno value: EMFILE gives "raise the limit of open files (ulimit
 * -n)". NULL: nothing that could be named. */
const char *system_advice(int error_number);

/* As fail_errno of base/error.h, with ": " and the advice, if there is one, appended to the text:
 *     launcher: signalfd: Too many open files: raise the limit of open files (ulimit -n)
 * Returns ERR_MEMORY for ENOMEM, else ERR_FAILED. */
int fail_system(int error_number, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
