/* A kernel that refuses a system call, as a container, a sandbox or another file system may: a
 * seccomp filter on this process and every process that it starts. */
#ifndef TESTS_HARNESS_REFUSE_H
#define TESTS_HARNESS_REFUSE_H

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

struct refused_call {
    const char *name;
    long number;
    /* bits not 0: refused only where this argument has one of them */
    int argument;
    uint32_t bits;
};

/* From now on the call fails with `error`. Returns 1, or 0 if this system has no such filters. */
static inline int refuse_call(const struct refused_call *call, int error) {
    /* the lower half of the argument: little-endian */
    uint32_t argument =
        (uint32_t)(offsetof(struct seccomp_data, args) + sizeof(uint64_t) * (size_t)call->argument);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call->number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, call->bits, 0, call->bits ? 1 : 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

#endif
