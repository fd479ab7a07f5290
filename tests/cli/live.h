/* What the tests of --live share: a command on a terminal of the test's own, and its last screen
 * held to the run's JSON. */
#ifndef TESTS_CLI_LIVE_H
#define TESTS_CLI_LIVE_H

#include <termios.h>

#include "tests/cli/json.h"
#include "tests/cli/run.h"
#include "tests/cli/terminal.h"
#include "trace/ledger.h"

enum { ROWS = 24 }; /* of the terminals that tests/cli/run.h makes */

/* A command on a terminal, and how that was set before. */
struct session {
    struct cli c;
    struct terminal t;
    struct termios before;
    int side; /* another descriptor of the terminal, which outlives that of `c` */
};

/* A build without ncurses refuses --live, and says what to install. */
static inline void skip_without_ncurses(void) {
    struct cli c;
    cli_run(&c, "train --live --quiet");
    int absent = strstr(c.err, "no ncurses: install libncurses-dev") != NULL;
    cli_free(&c);
    if (absent) cr_skip_test("built without ncurses");
}

static inline void begin(struct session *s, int columns, const char *words) {
    skip_without_ncurses();
    term_init(&s->t, ROWS, columns);
    cli_start_on_narrow_terminal(&s->c, columns, "%s", words);
    /* the modes of a terminal that nobody has touched; the command may be at its own already */
    int fresh = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    cr_assert(fresh >= 0 && !tcgetattr(fresh, &s->before));
    close(fresh);
    s->side = fcntl(s->c.terminal, F_DUPFD_CLOEXEC, 0);
    cr_assert_geq(s->side, 0);
}

/* Waits until `text` stands on the screen. */
static inline int screen_shows(struct session *s, const char *text) {
    for (int64_t deadline = deadline_after(CLI_SECONDS); now_ns() < deadline; cli_pause()) {
        cli_listen(&s->c);
        term_listen(&s->t, &s->c);
        char *all = term_text(&s->t, &s->t.screen[s->t.alternate]);
        int found = strstr(all, text) != NULL;
        free(all);
        if (found) return 1;
    }
    return 0;
}

static inline void is_given_back(struct session *s, const char *what) {
    struct termios now;
    cr_assert_eq(tcgetattr(s->side, &now), 0);
    cr_expect(!s->t.alternate && !s->t.hidden_cursor, "%s: alternate screen %d, no cursor %d", what,
              s->t.alternate, s->t.hidden_cursor);
    cr_expect(now.c_lflag == s->before.c_lflag && now.c_iflag == s->before.c_iflag &&
                  now.c_oflag == s->before.c_oflag,
              "%s: the terminal's modes are others", what);
}

/* Waits for the end. The terminal has been given back, and what was held back stands on it. */
static inline void end(struct session *s, int status, const char *what) {
    cli_wait(&s->c);
    term_listen(&s->t, &s->c);
    cr_assert_eq(s->c.status, status, "%s: status %d: %s", what, s->c.status, s->c.err);
    cr_expect_eq(s->t.used, s->c.seen, "%s: half a character or sequence at the end", what);
    cr_expect_gt(s->t.times_taken, 0, "%s: no dashboard", what);
    is_given_back(s, what);
    close(s->side);
}

static inline void has(const char *screen, const char *text) {
    cr_expect(strstr(screen, text), "'%s' is not on\n%s", text, screen);
}

/* The last screen says what the JSON of the run does. */
static inline void says_what_json_says(const struct session *s, const char *path, const char *title,
                                       const char *kind) {
    struct json *root = json_of(path);
    char *screen = term_text(&s->t, &s->t.left), want[128];
    int steps = (int)json_int(root, "steps");
    double seconds = json_double(root, "training_seconds");
    has(screen, title);
    snprintf(want, sizeof want, "step %d/%d ", steps, steps);
    has(screen, want);
    snprintf(want, sizeof want, "%.0f images/s", (double)json_int(root, "images") / seconds);
    has(screen, want);
    snprintf(want, sizeof want, "losses/%d", steps - 1);
    double loss = json_double(root, want);
    snprintf(want, sizeof want, "loss %.4f", loss);
    has(screen, want);
    snprintf(want, sizeof want, "o test acc %.4f   valid_loss %.4f",
             json_double(root, "accuracy/1"), json_double(root, "valid_loss/1"));
    has(screen, want);
    for (int d = 0; d < (int)json_int(root, "devices"); d++) {
        char key[64], name[24], held[32], all[32];
        int shown = -1;
        snprintf(key, sizeof key, "per_device/%d", d);
        const struct json *device = json_at(root, key);
        snprintf(name, sizeof name, "%s(%d)", kind, d);
        snprintf(want, sizeof want, "%-9s%s of %s ", name,
                 format_bytes((uint64_t)json_int(device, "memory_now"), held, sizeof held),
                 format_bytes((uint64_t)json_int(device, "memory_capacity"), all, sizeof all));
        has(screen, want);
        const char *line = strstr(screen, want), *busy = line ? strstr(line, "busy") : NULL;
        double share = (double)json_int(device, "busy_ns") * 1e-9 / seconds;
        cr_expect(busy && sscanf(busy, "busy %d", &shown) == 1);
        /* every rank takes its share of its own time; that in the file is rank 0's, and a run of
         * a few milliseconds is not equally long for all */
        double bound = d && !strncmp(title, "DDP", 3) ? 5 + 50 * share : 1;
        cr_expect(fabs(shown - 100 * share) <= bound, "busy %d %%, not %.1f", shown, 100 * share);
    }
    free(screen);
    json_free(root);
}

#endif
