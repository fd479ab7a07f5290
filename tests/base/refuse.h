/* Makes this process, and every process that it starts, live with a system that lacks something:
 * with system call filters, as containers use them. */
#ifndef TESTS_BASE_REFUSE_H
#define TESTS_BASE_REFUSE_H

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum refusal {
    REFUSE_NAMES,   /* linkat is not permitted: an unnamed file cannot get a name */
    REFUSE_TMPFILE, /* open knows no O_TMPFILE, as on NFS */
    REFUSALS
};

static inline int refuse(enum refusal what) {
    unsigned number = what == REFUSE_NAMES ? SYS_linkat : SYS_openat;
    unsigned bits = what == REFUSE_NAMES ? 0 : O_TMPFILE & ~O_DIRECTORY;
    unsigned refused = SECCOMP_RET_ERRNO | (what == REFUSE_NAMES ? EPERM : EOPNOTSUPP);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, bits ? 2 : 1),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, refused),
    };
    if (!bits) filter[1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 3, 2);
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

#endif
