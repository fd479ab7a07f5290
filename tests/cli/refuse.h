/* Commands for which the kernel refuses one system call, as a container or a limit may: a seccomp
 * filter in the child, before it becomes the command. All its processes inherit the filter. */
#ifndef TESTS_CLI_REFUSE_H
#define TESTS_CLI_REFUSE_H

#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#include "tests/cli/run.h"

struct refused_call {
    const char *name;
    int number;
    /* refused only where this argument has one of these bits; bits 0: always */
    int argument;
    uint32_t bits;
};

/* 0 if this system has no such filters. */
static inline int refuse(const struct refused_call *call, int error) {
    uint32_t at =
        (uint32_t)(offsetof(struct seccomp_data, args) +
                   sizeof(uint64_t) * (size_t)call->argument); /* the lower half: little-endian */
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call->number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, call->bits, 0, call->bits ? 1 : 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

enum { NO_FILTER = 124 }; /* exit status of a command that was never started */

/* cli_start for a command whose `call` fails with `error`. */
static inline void start_refused(struct cli *c, const struct refused_call *call, int error,
                                 const char *words) {
    char text[1024];
    snprintf(text, sizeof text, "%s", words);
    *c = (struct cli){.status = -1, .terminal = -1};
    for (int i = 0; i < 2; i++)
        cr_assert_geq(c->fds[i] = memfd_create("cli", MFD_CLOEXEC), 0);
    c->pid = fork();
    cr_assert_geq(c->pid, 0);
    if (c->pid == 0) {
        if (!refuse(call, error)) _exit(NO_FILTER);
        cli_become(c, NULL, text);
    }
    setpgid(c->pid, c->pid);
}

#endif
