/* The output of ranks. What is redirected goes to a file by itself: the rank has the file as its
 * stdout. What is to go to both ends is written into a pipe. One process beside the launcher reads
 * all pipes, writes what comes to the files, and prints it line by line with the rank in front,
 * "[default0]:", as torchrun does. It is a process and not a thread, because the launcher forks. */
#include "cli/run/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "base/program_name.h"
#include "base/system_error.h"
#include "base/text/parse.h"

enum { LINE = 8192, STREAMS = 2 };
static const char *const NAMES[STREAMS] = {"stdout.log", "stderr.log"};

int run_output_parse(const char *option, const char *text, int *by_rank) {
    char word[32];
    int64_t rank, value;
    if (!strchr(text, ':')) {
        CHECK(parse_int(option, text, 0, 3, &value));
        for (int r = 0; r < MAX_DEVICES; r++)
            by_rank[r] = (int)value;
        return OK;
    }
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        char *colon = strchr(word, ':');
        if (!colon)
            return fail(ERR_USAGE, "%s: %s: give 0 to 3, or RANK:0 to 3 with commas between",
                        option, text);
        *colon = 0;
        CHECK(parse_int(option, word, 0, MAX_DEVICES - 1, &rank));
        CHECK(parse_int(option, colon + 1, 0, 3, &value));
        by_rank[rank] = (int)value;
    }
    return OK;
}

/* ---- files ---- */

int run_output_choose_folder(struct run_output *o, int ranks) {
    const char *parent = getenv("TMPDIR");
    int asked = 0;
    for (int r = 0; r < ranks; r++)
        asked |= o->redirect[r] | o->tee[r];
    if (o->folder || !asked) return OK;
    snprintf(o->temporary, sizeof o->temporary, "%s/%s-run-XXXXXX",
             parent && *parent ? parent : "/tmp", program_name());
    if (!mkdtemp(o->temporary))
        return fail_system(errno, "%s: for the files of --redirects and --tee", o->temporary);
    o->folder = o->temporary;
    fprintf(stderr, "%s run: the files of --redirects and --tee are in %s\n", program_name(),
            o->folder);
    return OK;
}

static void file_of(const struct run_output *o, int rank, int stream, char *path, size_t bytes) {
    snprintf(path, bytes, "%s/%d/%s", o->attempt, rank, NAMES[stream]);
}

static int open_file(const struct run_output *o, int rank, int stream) {
    char path[4200];
    file_of(o, rank, stream, path, sizeof path);
    return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

static int make_folder(const char *path) {
    if (!mkdir(path, 0777) || errno == EEXIST) return OK;
    return fail_errno(ERR_FAILED, errno, "--log-dir: %s", path);
}

static int make_folders(struct run_output *o, int ranks, int attempt) {
    char path[4200];
    CHECK(make_folder(o->folder));
    int length = snprintf(o->attempt, sizeof o->attempt, "%s/attempt_%d", o->folder, attempt);
    if (length >= (int)sizeof o->attempt) return fail(ERR_USAGE, "--log-dir: too long a path");
    CHECK(make_folder(o->attempt));
    for (int r = 0; r < ranks; r++) {
        snprintf(path, sizeof path, "%s/%d", o->attempt, r);
        CHECK(make_folder(path));
        for (int s = 0; s < STREAMS; s++) {
            if (!((o->redirect[r] | o->tee[r]) >> s & 1)) continue;
            int fd = open_file(o, r, s);
            if (fd < 0) return fail_errno(ERR_FAILED, errno, "--log-dir: %s/%s", path, NAMES[s]);
            close(fd);
        }
    }
    return OK;
}

/* ---- the process that copies ---- */

struct stream {
    const struct run_output *output;
    int rank, number;   /* whose stream it is: 0 stdout, 1 stderr */
    int from, file, to; /* file -1: none; to -1: the reader has gone */
    char prefix[64], line[LINE];
    size_t used;
    int lost; /* 1: something could not be written */
};

static int write_all(int fd, const char *text, size_t bytes) {
    while (bytes > 0) {
        ssize_t wrote = write(fd, text, bytes);
        if (wrote < 0 && errno == EAGAIN) { /* whoever shares the terminal wants it so */
            struct pollfd polled = {.fd = fd, .events = POLLOUT};
            poll(&polled, 1, -1);
        }
        if (wrote < 0 && errno != EINTR && errno != EAGAIN) return -1;
        if (wrote < 0) continue;
        text += wrote;
        bytes -= (size_t)wrote;
    }
    return 0;
}

/* To *fd, unless it is -1. If that fails, it says so, once: *fd becomes -1, and nothing more is
 * written there. Returns 1 if bytes were lost. A reader that has gone is no failure. */
static int put(const struct stream *s, int *fd, const char *text, size_t bytes) {
    char path[4200] = "what is printed here";
    if (*fd < 0 || !write_all(*fd, text, bytes)) return 0;
    int error = errno;
    if (fd == &s->file) file_of(s->output, s->rank, s->number, path, sizeof path);
    *fd = -1;
    if (error == EPIPE) return 0;
    fprintf(stderr, "%s: --tee: %s: %s: it lacks what rank %d prints from here on\n",
            program_name(), path, strerror(error), s->rank);
    return 1;
}

/* One write a line, so that the lines of ranks do not mix. */
static int print_line(struct stream *s, size_t length) {
    char out[LINE + 72];
    int used = snprintf(out, sizeof out, "%s", s->prefix);
    memcpy(out + used, s->line, length);
    if (!length || s->line[length - 1] != '\n') out[used + (int)length++] = '\n';
    return put(s, &s->to, out, (size_t)used + length);
}

static void take(struct stream *s, const char *text, size_t bytes) {
    s->lost |= put(s, &s->file, text, bytes);
    for (size_t i = 0; i < bytes; i++) {
        s->line[s->used++] = text[i];
        if (text[i] != '\n' && s->used < LINE) continue;
        s->lost |= print_line(s, s->used);
        s->used = 0;
    }
}

/* Takes at most `most` bytes; 0: nothing more comes. */
static int copy_some(struct stream *s, size_t most) {
    char text[LINE];
    ssize_t got = read(s->from, text, most < LINE ? most : LINE);
    if (got > 0) take(s, text, (size_t)got);
    return got > 0 || (got < 0 && errno == EINTR);
}

static void end_stream(struct stream *s) {
    if (s->used) s->lost |= print_line(s, s->used);
    close(s->from);
    s->from = -1; /* poll skips it from now on */
}

/* Takes what lies in the pipe now. */
static void copy_rest(struct stream *s) {
    int left = 0;
    if (s->from < 0) return;
    while (!ioctl(s->from, FIONREAD, &left) && left > 0 && copy_some(s, (size_t)left))
        continue;
    end_stream(s);
}

/* Until nobody holds a pipe any more, or until `running` hangs up behind the last rank: a process
 * that a rank left behind may hold a pipe open for ever. Returns 1 if something was lost. */
static int pump(struct stream *streams, int count, int running) {
    struct pollfd polled[MAX_DEVICES * STREAMS + 1];
    for (int open = count; open > 0;) {
        for (int i = 0; i < count; i++)
            polled[i] = (struct pollfd){.fd = streams[i].from, .events = POLLIN};
        polled[count] = (struct pollfd){.fd = running};
        if (poll(polled, (nfds_t)count + 1, -1) < 0) continue;
        if (polled[count].revents) break;
        for (int i = 0; i < count; i++) {
            if (!polled[i].revents || copy_some(&streams[i], LINE)) continue;
            end_stream(&streams[i]);
            open--;
        }
    }
    int lost = 0;
    for (int i = 0; i < count; i++) {
        copy_rest(&streams[i]);
        lost |= streams[i].lost;
    }
    return lost;
}

static void close_pipes(struct run_output *o, int ranks) {
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < STREAMS; s++) {
            if (o->pipes[r][s] >= 0) close(o->pipes[r][s]);
            o->pipes[r][s] = -1;
        }
    if (o->running >= 0) close(o->running);
    o->running = -1;
}

/* In the process that copies: it ends behind the ranks, with their last words. */
static void be_pump(struct stream *streams, int count, int running) {
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    _exit(pump(streams, count, running));
}

static int open_streams(struct run_output *o, int ranks, struct stream *streams, int *count) {
    for (int r = 0; r < ranks; r++)
        for (int s = 0; s < STREAMS; s++) {
            int ends[2];
            if (!(o->tee[r] >> s & 1)) continue;
            if (pipe2(ends, O_CLOEXEC)) return fail_system(errno, "--tee: pipe");
            o->pipes[r][s] = ends[1];
            struct stream *stream = &streams[(*count)++];
            *stream = (struct stream){.output = o,
                                      .rank = r,
                                      .number = s,
                                      .from = ends[0],
                                      .file = o->folder ? open_file(o, r, s) : -1,
                                      .to = s + 1};
            if (o->folder && stream->file < 0)
                return fail_system(errno, "--tee: %s of rank %d", NAMES[s], r);
            snprintf(stream->prefix, sizeof stream->prefix, "[%.40s%d]:", o->role, r);
        }
    return OK;
}

static int start_pump(struct run_output *o, int ranks, struct stream *streams) {
    int count = 0, ends[2] = {-1, -1}, code = OK;
    CHECK_GOTO(open_streams(o, ranks, streams, &count), code, out);
    if (!count) return OK;
    if (pipe2(ends, O_CLOEXEC)) CHECK_GOTO(fail_system(errno, "--tee: pipe"), code, out);
    o->running = ends[1];
    fflush(NULL);
    o->pump = fork();
    if (o->pump == 0) {
        close_pipes(o, ranks);
        be_pump(streams, count, ends[0]);
    }
    if (o->pump < 0) code = fail_system(errno, "--tee: fork");
out:
    for (int i = 0; i < count; i++) {
        close(streams[i].from);
        if (streams[i].file >= 0) close(streams[i].file);
    }
    if (ends[0] >= 0) close(ends[0]);
    return code;
}

int run_output_begin(struct run_output *o, int ranks, int attempt) {
    memset(o->pipes, -1, sizeof o->pipes);
    o->running = -1;
    o->pump = 0;
    if (o->folder) CHECK(make_folders(o, ranks, attempt));
    struct stream *streams = calloc(MAX_DEVICES * STREAMS, sizeof *streams);
    if (!streams) return fail(ERR_MEMORY, "--tee: no host memory");
    int code = start_pump(o, ranks, streams);
    free(streams);
    return code;
}

/* As long as whoever reads the output takes for it: as a program that prints waits for its reader.
 * A signal to this command ends the wait. */
void run_output_end(struct run_output *o, int ranks) {
    int status = 0;
    close_pipes(o, ranks);
    while (o->pump > 0 && waitpid(o->pump, &status, 0) < 0 && errno == EINTR)
        continue;
    o->pump = 0;
    if (status) o->lost = 1;
    if (WIFSIGNALED(status))
        fprintf(stderr, "%s: --tee: signal %d ended the process that copies what ranks print\n",
                program_name(), WTERMSIG(status));
}

int run_output_enter(const struct run_output *o, int rank) {
    for (int s = 0; s < STREAMS; s++) {
        int fd = o->pipes[rank][s];
        if (fd < 0 && o->redirect[rank] >> s & 1)
            fd = open_file(o, rank, s);
        else if (fd < 0)
            continue;
        if (fd < 0 || dup2(fd, s + 1) < 0) return errno;
    }
    return 0;
}
