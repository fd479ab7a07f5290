/* The dashboard's thread, and the terminal's way there and back: see live.h. */
#include "cli/live/live.h"

#include <errno.h>
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/system_error.h"
#include "cli/live/screen.h"
#include "report/live/live_view.h"

enum { LEAST_COLUMNS = 60, PERIOD_MS = 200, MESSAGE_BYTES = 2048 };

struct live {
    struct live_page *page;
    int page_fd, terminal; /* terminal: what standard error was */
    int said;              /* memory file of what is printed meanwhile */
    int held[2];           /* what descriptors 1 and 2 were; -1: left as it was */
    struct screen *screen;
    struct live_view *view;
    struct canvas canvas;
    sigset_t mask_before;
    int stop_fd, signal_fd;
    pthread_t thread;
    int running;
    int away; /* the terminal has been given back for a while, or another group has it */
};

/* ---- drawing ---- */

/* A terminal that is not this session's own has no background. */
static int is_in_foreground(int terminal) {
    pid_t group = tcgetpgrp(terminal);
    return group < 0 || group == getpgrp();
}

/* The end of what was printed meanwhile. */
static const char *last_words(const struct live *l, char text[MESSAGE_BYTES]) {
    struct stat about;
    off_t end = fstat(l->said, &about) ? 0 : about.st_size, most = MESSAGE_BYTES - 1;
    ssize_t n = pread(l->said, text, MESSAGE_BYTES - 1, end > most ? end - most : 0);
    text[n > 0 ? n : 0] = 0;
    return text;
}

static void draw(struct live *l) {
    char text[MESSAGE_BYTES];
    int rows, columns;
    screen_size(l->screen, &rows, &columns);
    if (canvas_resize(&l->canvas, rows, columns)) return; /* the old picture stays */
    live_view_draw(l->view, &l->canvas, last_words(l, text));
    screen_show(l->screen, &l->canvas);
}

/* Ctrl-Z: the terminal is given back, and this process stops as it would without a dashboard. In
 * the background the terminal stays with others; the next period looks again. */
static void stop_for_a_while(struct live *l) {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    screen_leave(l->screen);
    raise(SIGTSTP);
    pthread_sigmask(SIG_UNBLOCK, &stop, NULL); /* here it stops, and here it goes on */
    pthread_sigmask(SIG_BLOCK, &stop, NULL);
}

static void *draw_now_and_then(void *argument) {
    struct live *l = argument;
    struct pollfd polled[2] = {{.fd = l->stop_fd, .events = POLLIN},
                               {.fd = l->signal_fd, .events = POLLIN}};
    for (;;) {
        struct signalfd_siginfo info;
        live_view_read(l->view, l->page);
        int here = is_in_foreground(l->terminal);
        if (!here) l->away = 1; /* its modes are those of whoever has it now */
        if (here && l->away) {
            screen_return(l->screen);
            l->away = 0;
        }
        if (here) draw(l);
        if (polled[0].revents) break; /* that was the last picture */
        if (poll(polled, 2, PERIOD_MS) <= 0 || !(polled[1].revents & POLLIN)) continue;
        if (read(l->signal_fd, &info, sizeof info) != (ssize_t)sizeof info) continue;
        if (!l->away) stop_for_a_while(l);
        l->away = 1;
    }
    return NULL;
}

/* ---- the way there ---- */

static int fits(int terminal) {
    const char *name = getenv("TERM");
    struct winsize size;
    return isatty(terminal) && name && *name && strcmp(name, "dumb") != 0 &&
           !ioctl(terminal, TIOCGWINSZ, &size) && size.ws_col >= LEAST_COLUMNS &&
           is_in_foreground(terminal);
}

static int make_page(struct live *l) {
    l->page_fd = memfd_create("duet-live", MFD_CLOEXEC);
    l->said = memfd_create("duet-said", MFD_CLOEXEC);
    if (l->page_fd < 0 || l->said < 0) return fail_system(errno, "--live: memfd_create");
    if (ftruncate(l->page_fd, sizeof *l->page) || fcntl(l->said, F_SETFL, O_APPEND))
        return fail_system(errno, "--live: a memory file of %zu bytes", sizeof *l->page);
    return live_page_map(&l->page, l->page_fd, 0);
}

/* From here on whoever writes to the terminal, also a rank, writes to the memory file. */
static void hold_back(struct live *l) {
    fflush(NULL);
    for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO; fd++) {
        if (!isatty(fd)) continue;
        l->held[fd - 1] = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
        dup2(l->said, fd);
    }
}

static void give_out(struct live *l) {
    char piece[4096];
    fflush(NULL);
    for (int i = 0; i < 2; i++) {
        if (l->held[i] < 0) continue;
        dup2(l->held[i], i + 1);
        close(l->held[i]);
    }
    lseek(l->said, 0, SEEK_SET);
    for (ssize_t n; (n = read(l->said, piece, sizeof piece)) > 0;)
        fwrite(piece, 1, (size_t)n, stderr);
    fflush(stderr);
}

static int block_signals(struct live *l) {
    sigset_t all, stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    all = stop;
    sigaddset(&all, SIGINT);
    sigaddset(&all, SIGTERM);
    sigaddset(&all, SIGHUP);
    sigaddset(&all, SIGQUIT);
    sigaddset(&all, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &all, &l->mask_before);
    l->signal_fd = signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK);
    l->stop_fd = eventfd(0, EFD_CLOEXEC);
    return l->signal_fd < 0 || l->stop_fd < 0 ? fail_system(errno, "--live: signalfd") : OK;
}

static int start(struct live *l) {
    const char *no_colour = getenv("NO_COLOR");
    setlocale(LC_CTYPE, ""); /* and nothing else: numbers keep their point */
    l->canvas.utf8 = !strcmp(nl_langinfo(CODESET), "UTF-8");
    CHECK(make_page(l));
    CHECK(live_view_new(&l->view));
    CHECK(block_signals(l));
    l->terminal = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    l->screen = screen_open(l->terminal, !(no_colour && *no_colour));
    if (!l->screen) return OK; /* lines will do */
    hold_back(l);
    int error = pthread_create(&l->thread, NULL, draw_now_and_then, l);
    if (error) return fail_system(error, "--live: thread that draws");
    l->running = 1;
    return OK;
}

int live_screen_open(struct live **out, struct run_config *config) {
    *out = NULL;
    if (!config->live) return OK;
    if (!fits(STDERR_FILENO)) return OK;
    struct live *l = *out = calloc(1, sizeof *l);
    if (!l) return fail(ERR_MEMORY, "--live: no host memory");
    l->held[0] = l->held[1] = l->page_fd = l->said = l->terminal = l->stop_fd = l->signal_fd = -1;
    pthread_sigmask(SIG_SETMASK, NULL, &l->mask_before);
    int code = start(l);
    if (code || !l->screen)
        live_screen_close(out);
    else
        config->live_fd = l->page_fd, config->spans = 1;
    return code;
}

/* ---- the way back ---- */

/* A last picture, which stays in the terminal as the chart of a notebook does. */
static void print_picture(struct live *l) {
    enum { MOST_ROWS = 24, BELOW = 4, LEAST_ROWS = 10 }; /* BELOW: for what is printed next */
    int rows = l->canvas.rows - BELOW;
    rows = rows > MOST_ROWS ? MOST_ROWS : rows < LEAST_ROWS ? LEAST_ROWS : rows;
    live_view_read(l->view, l->page);
    if (canvas_resize(&l->canvas, rows, l->canvas.columns)) return;
    live_view_draw(l->view, &l->canvas, NULL);
    canvas_print(&l->canvas, stderr);
    fputc('\n', stderr);
}

static void end_thread(struct live *l) {
    uint64_t one = 1;
    if (!l->running) return;
    while (write(l->stop_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
    pthread_join(l->thread, NULL);
}

void live_screen_close(struct live **live) {
    struct live *l = *live;
    if (!l) return;
    const struct failures kept = failures_of(ERR_FAILED);
    end_thread(l);
    screen_close(l->screen, !l->away && is_in_foreground(l->terminal));
    if (l->running) {
        int err = l->held[1];
        if (err >= 0) fflush(NULL), dup2(err, STDERR_FILENO);
        print_picture(l);
    }
    give_out(l);
    live_page_unmap(l->page);
    live_view_free(l->view);
    canvas_free(&l->canvas);
    const int fds[] = {l->page_fd, l->said, l->terminal, l->stop_fd, l->signal_fd};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0) close(fds[i]);
    pthread_sigmask(SIG_SETMASK, &l->mask_before, NULL);
    free(l);
    *live = NULL;
    failures_end(&kept);
}
