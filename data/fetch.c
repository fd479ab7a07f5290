/* The download itself is scripts/download_data.sh, the one that `make data` runs: its text is a
 * part of the program, and bash gets it as an argument. Here are the process, its deadline, what it
 * says, and the lock. */
#include "data/fetch.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/program_name.h"

extern char **environ;

enum { LINE = 200, LOOK_MS = 50 };
static const double PATIENCE_S = 600; /* 11 MB of MNIST, 30 MB of Fashion-MNIST, on a slow line */

extern const char fetch_script[];
__asm__(".pushsection .rodata\n"
        ".type fetch_script, %object\n"
        ".globl fetch_script\nfetch_script:\n"
        ".incbin \"scripts/download_data.sh\"\n"
        ".byte 0\n"
        ".size fetch_script, . - fetch_script\n"
        ".popsection\n");

/* The last line that the script has said, which says why it failed; its own or that of curl. */
struct heard {
    char line[LINE], next[LINE];
    size_t count;
};

static void hear(struct heard *h, const char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != '\n') {
            if (h->count < LINE - 1) h->next[h->count++] = bytes[i];
            continue;
        }
        h->next[h->count] = 0;
        /* what curl says tells more than the script's end */
        if (h->count && (!strncmp(h->next, "curl:", 5) || strncmp(h->line, "curl:", 5)))
            memcpy(h->line, h->next, h->count + 1);
        h->count = 0;
    }
}

/* Until the script has closed its end; ERR_TIMEOUT: it has not by then. */
static int listen_to(int fd, int64_t deadline, struct heard *h) {
    char bytes[512];
    while (now_ns() < deadline) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        if (poll(&look, 1, LOOK_MS) <= 0) continue;
        ssize_t count = read(fd, bytes, sizeof bytes);
        if (count <= 0) return OK;
        hear(h, bytes, (size_t)count);
    }
    return ERR_TIMEOUT;
}

/* A group of its own, so that what the script has started ends with it. It reads `life`, and ends
 * when nobody holds the other end any more: this process has ended, in whatever way. */
static int start(pid_t *pid, const char *name, int life, int says) {
    char *words[] = {"bash", "-c", (char *)(uintptr_t)fetch_script, "duet", (char *)(uintptr_t)name,
                     NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, life, 0);
    posix_spawn_file_actions_adddup2(&files, says, 1);
    posix_spawn_file_actions_adddup2(&files, says, 2);
    posix_spawnattr_init(&how);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);
    int code = posix_spawnp(pid, words[0], &files, &how, words, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    return code;
}

/* life: two ends of a pipe, and says: those of another. All are closed here. */
static int run_with(const char *name, int64_t deadline, const int life[2], const int says[2]) {
    struct heard heard = {0};
    int status = 0;
    pid_t pid;
    int code = start(&pid, name, life[0], says[1]);
    close(life[0]);
    close(says[1]);
    if (code) {
        close(life[1]);
        close(says[0]);
        return fail(ERR_FAILED, "bash, which downloads it, cannot be started: %s", strerror(code));
    }
    code = listen_to(says[0], deadline, &heard);
    close(says[0]);
    if (code) kill(-pid, SIGTERM); /* the script then removes what is not whole */
    waitpid(pid, &status, 0);
    close(life[1]);
    if (code) return fail(ERR_FAILED, "its download took more than %.0f s", PATIENCE_S);
    if (status) return fail(ERR_FAILED, "its download failed (%s)", heard.line);
    return OK;
}

static int run_script(const char *name, int64_t deadline) {
    int life[2], says[2];
    if (pipe2(life, O_CLOEXEC)) return fail(ERR_FAILED, "no pipe for the download");
    if (pipe2(says, O_CLOEXEC)) {
        close(life[0]);
        close(life[1]);
        return fail(ERR_FAILED, "no pipe for the download");
    }
    return run_with(name, deadline, life, says);
}

/* The lock is the folder's own, so that nothing is left behind. */
static int lock_folder(int fd, int64_t deadline) {
    while (flock(fd, LOCK_EX | LOCK_NB)) {
        if (now_ns() > deadline) return fail(ERR_FAILED, "another process still downloads it");
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000 * 1000}, NULL);
    }
    return OK;
}

static int is_off(void) {
    const char *word = getenv("DUET_DOWNLOAD");
    return word && (!strcmp(word, "off") || !strcmp(word, "0"));
}

int fetch_dataset(const char *name, int (*there)(void *context), void *context) {
    if (is_off()) return fail(ERR_FAILED, "DUET_DOWNLOAD is off");
    int64_t deadline = deadline_after(PATIENCE_S);
    int fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return fail(ERR_FAILED, "the current folder cannot be read");
    int code = lock_folder(fd, deadline);
    if (!code && !there(context)) {
        fprintf(stderr, "%s: downloading %s to datasets/%s (DUET_DOWNLOAD=off: never)\n",
                program_name(), name, name);
        code = run_script(name, deadline);
    }
    close(fd); /* and with it the lock */
    return code;
}
