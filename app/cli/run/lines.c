/* Lines of ranks with the rank in front: see lines.h. A rank writes into a pipe. One process beside
 * the launcher reads all pipes and prints whole lines. It is a process and not a thread, because
 * the launcher forks. If its own reader is gone, it ends, so the ranks' pipes close, too. */
#include "cli/run/lines.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/system_error.h"

enum { LINE = 8192, MOST_STREAMS = MAX_DEVICES * LINES_STREAMS };

struct stream {
    int from, to;
    size_t head, used; /* bytes of `line`: of the rank's name, and of all that is in it */
    char line[LINE];
};

static int write_all(int fd, const char *text, size_t bytes) {
    while (bytes > 0) {
        ssize_t wrote = write(fd, text, bytes);
        if (wrote < 0 && errno == EAGAIN) { /* whoever shares the terminal has made it so */
            struct pollfd polled = {.fd = fd, .events = POLLOUT};
            poll(&polled, 1, -1);
        } else if (wrote < 0 && errno != EINTR) {
            return -1;
        }
        if (wrote > 0) text += wrote, bytes -= (size_t)wrote;
    }
    return 0;
}

static int print_line(struct stream *s) {
    size_t bytes = s->used;
    s->used = s->head;
    return write_all(s->to, s->line, bytes);
}

/* Takes what is in the pipe. *open becomes 0 behind its end. A line that is too long is cut. */
static int take(struct stream *s, int *open) {
    char text[LINE];
    ssize_t got = read(s->from, text, sizeof text);
    if (got < 0) return errno == EINTR ? 0 : -1;
    *open = got > 0;
    if (!got && s->used > s->head) { /* the last line has no end */
        s->line[s->used++] = '\n';
        return print_line(s);
    }
    for (ssize_t i = 0; i < got; i++) {
        s->line[s->used++] = text[i];
        int full = s->used == LINE - 1;
        if (full && text[i] != '\n') s->line[s->used++] = '\n';
        if ((full || text[i] == '\n') && print_line(s)) return -1;
    }
    return 0;
}

/* Until nobody holds a pipe any more. Returns the exit status. */
static int read_all(struct stream *streams, int count) {
    struct pollfd polled[MOST_STREAMS];
    for (int i = 0; i < count; i++)
        polled[i] = (struct pollfd){.fd = streams[i].from, .events = POLLIN};
    for (int left = count; left > 0;) {
        if (poll(polled, (nfds_t)count, -1) < 0) continue; /* EINTR */
        for (int i = 0; i < count; i++) {
            int open = 1;
            if (!polled[i].revents) continue;
            if (take(&streams[i], &open)) return 1;
            if (open) continue;
            polled[i].fd = -1; /* poll skips it from now on */
            left--;
        }
    }
    return 0;
}

static void close_pipes(struct lines *l, int ranks) {
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < LINES_STREAMS; s++) {
            if (l->pipes[r][s] >= 0) close(l->pipes[r][s]);
            l->pipes[r][s] = -1;
        }
}

static int open_pipes(struct lines *l, int ranks, int wanted, struct stream *streams, int *count) {
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < LINES_STREAMS; s++) {
            int ends[2];
            if (!(wanted >> s & 1)) continue;
            if (pipe2(ends, O_CLOEXEC)) return fail_system(errno, "--tee: pipe");
            struct stream *stream = &streams[(*count)++];
            l->pipes[r][s] = ends[1];
            stream->from = ends[0], stream->to = s + 1;
            stream->head = stream->used = (size_t)snprintf(stream->line, LINE, "[default%d]:", r);
        }
    return OK;
}

/* Ctrl-C reaches this process too. It ends behind the ranks, with their last words. */
static void be_reader(struct lines *l, int ranks, struct stream *streams, int count) {
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    close_pipes(l, ranks);
    _exit(read_all(streams, count));
}

int lines_start(struct lines *l, int ranks, int wanted) {
    int count = 0, code = OK;
    l->reader = 0;
    memset(l->pipes, -1, sizeof l->pipes);
    if (!wanted) return OK;
    struct stream *streams = malloc(MOST_STREAMS * sizeof *streams);
    if (!streams) return fail(ERR_MEMORY, "--tee: no host memory");
    code = open_pipes(l, ranks, wanted, streams, &count);
    fflush(NULL);
    if (!code && (l->reader = fork()) == 0) be_reader(l, ranks, streams, count);
    if (!code && l->reader < 0) code = fail_system(errno, "--tee: fork");
    for (int i = 0; i < count; i++)
        close(streams[i].from);
    free(streams);
    return code;
}

int lines_enter(const struct lines *l, int rank) {
    for (int s = 0; s < LINES_STREAMS; s++)
        if (l->pipes[rank][s] >= 0 && dup2(l->pipes[rank][s], s + 1) < 0) return errno;
    return 0;
}

int lines_end(struct lines *l, int ranks) {
    int status = 0;
    close_pipes(l, ranks);
    while (l->reader > 0 && waitpid(l->reader, &status, 0) < 0 && errno == EINTR)
        continue;
    l->reader = 0;
    return status ? fail(ERR_FAILED, "--tee: not all that ranks printed could be written: see that "
                                     "the disk has room and the reader stays")
                  : OK;
}
