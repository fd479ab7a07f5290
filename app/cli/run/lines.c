/* Prefixes each output line with its rank: see lines.h. A rank writes into a pipe, and one process
 * per pipe prints whole lines. It is a process and not a thread, because the launcher forks. If its
 * own reader is gone, it ends, so the rank's pipe closes, too. */
#include "cli/run/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/system_error.h"

enum { LINE = 8192 };

static int write_all(int fd, const char *text, size_t bytes) {
    while (bytes > 0) {
        ssize_t wrote = write(fd, text, bytes);
        if (wrote < 0 && errno == EAGAIN) { /* another process has made the terminal non-blocking */
            struct pollfd polled = {.fd = fd, .events = POLLOUT};
            poll(&polled, 1, -1);
        } else if (wrote < 0 && errno != EINTR) {
            return -1;
        }
        if (wrote > 0) text += wrote, bytes -= (size_t)wrote;
    }
    return 0;
}

/* A line that is too long is cut; the last one may lack its newline. Returns the exit status. */
static int copy_lines(FILE *from, int to, int rank) {
    char line[LINE];
    size_t head = (size_t)snprintf(line, LINE, "[default%d]:", rank), used = head;
    for (int c = 0; from && c != EOF;) {
        c = getc(from);
        if (c != EOF) line[used++] = (char)c;
        if (c == EOF ? used == head : c != '\n' && used < LINE - 1) continue;
        if (c != '\n') line[used++] = '\n';
        if (write_all(to, line, used)) return 1;
        used = head;
    }
    return 0;
}

static void close_pipes(struct lines *l, int ranks) {
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < LINES_STREAMS; s++) {
            if (l->pipe[r][s] >= 0) close(l->pipe[r][s]);
            l->pipe[r][s] = -1;
        }
}

/* Ctrl-C reaches the reader, too. It ends after the ranks, once it has printed their last lines. */
static int start_reader(struct lines *l, int ranks, int r, int s) {
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    int ends[2];
    if (pipe2(ends, O_CLOEXEC)) return fail_system(errno, "--tee: pipe");
    l->pipe[r][s] = ends[1];
    if ((l->reader[r][s] = fork()) == 0) {
        for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
            signal(ignored[i], SIG_IGN);
        close_pipes(l, ranks);
        _exit(copy_lines(fdopen(ends[0], "r"), s + 1, r));
    }
    close(ends[0]);
    return l->reader[r][s] < 0 ? fail_system(errno, "--tee: fork") : OK;
}

int lines_start(struct lines *l, int ranks, int streams) {
    memset(l->reader, 0, sizeof l->reader);
    memset(l->pipe, -1, sizeof l->pipe);
    fflush(NULL);
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < LINES_STREAMS; s++)
            if (streams >> s & 1) CHECK(start_reader(l, ranks, r, s));
    return OK;
}

int lines_enter(const struct lines *l, int rank) {
    for (int s = 0; s < LINES_STREAMS; s++)
        if (l->pipe[rank][s] >= 0 && dup2(l->pipe[rank][s], s + 1) < 0) return -1;
    return 0;
}

int lines_end(struct lines *l, int ranks) {
    int status = 0, failed = 0;
    close_pipes(l, ranks);
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < LINES_STREAMS; s++) {
            while (l->reader[r][s] > 0 && waitpid(l->reader[r][s], &status, 0) < 0 &&
                   errno == EINTR)
                continue;
            failed |= status;
        }
    return failed ? fail(ERR_FAILED,
                         "--tee: some output of the ranks could not be written: is the disk "
                         "full, or has the reader ended?")
                  : OK;
}
