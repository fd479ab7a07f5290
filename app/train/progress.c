/* Prints progress: see progress.h. The line on a terminal is cleared with spaces, not with escape
 * codes. */
#include "train/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "trace/record.h"

static const int64_t REDRAW_NS = 200000000; /* draw the line at most five times a second */

void progress_start(struct progress *p, const char *title, int steps_per_epoch, int steps,
                    int quiet) {
    *p = (struct progress){.shown = !quiet,
                           .terminal = isatty(STDERR_FILENO),
                           .title = title,
                           .epochs = (steps - 1) / steps_per_epoch + 1,
                           .steps = steps,
                           .steps_per_epoch = steps_per_epoch,
                           .not_finite = -1};
}

/* Columns of the terminal; 0: it does not say. */
static int terminal_columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) ? 0 : size.ws_col;
}

/* Prints `text`, `width` columns wide, over the current line. stays: it keeps its line. Otherwise
 * it is cut to the terminal's width, because only the end of a wrapped line could be rewritten. */
static void show(struct progress *p, const char *text, int width, int stays) {
    int columns = p->terminal && !stays ? terminal_columns() : 0;
    if (columns && width >= columns) width = columns - 1;
    if (p->terminal)
        fprintf(stderr, "\r%.*s%*s%s", width, text,
                p->line_width > width ? p->line_width - width : 0, "", stays ? "\n" : "");
    else if (stays)
        fprintf(stderr, "%s\n", text);
    p->line_width = stays ? 0 : width;
}

void progress_loss(struct progress *p, int step, double loss) {
    if (p->not_finite < 0 && !isfinite(loss)) p->not_finite = step;
}

void progress_step(struct progress *p, int epoch, int step, double loss, int64_t samples,
                   double seconds) {
    if (!p->shown || !p->terminal || now_ns() - p->last_ns < REDRAW_NS) return;
    p->last_ns = now_ns();
    char text[160], speed[32] = "";
    double rate = seconds > 0 ? (double)samples / seconds : 0;
    if (!p->untimed) snprintf(speed, sizeof speed, "  %.*f samples/s", rate_digits(rate), rate);
    int done = step - p->first;
    int64_t left = done ? (int64_t)(seconds / done * (p->steps - step)) : 0; /* seconds */
    int width = snprintf(
        text, sizeof text, "%-6s epoch %d/%d  step %d/%d  loss %.4f%s  %" PRId64 ":%02d left",
        p->title, epoch + 1, p->epochs, step, p->steps, loss, speed, left / 60, (int)(left % 60));
    show(p, text, width, 0);
}

void progress_epoch(struct progress *p, int epoch, int step, double loss, double accuracy,
                    double valid_loss, int64_t samples, double seconds) {
    if (!p->shown) return;
    char text[240], warning[112] = "", times[64] = "";
    double rate = seconds > 0 ? (double)samples / seconds : 0;
    if (!p->untimed)
        snprintf(times, sizeof times, "  %.*f samples/s  %.1f s", rate_digits(rate), rate, seconds);
    if (p->not_finite >= 0)
        snprintf(warning, sizeof warning, "  loss not finite since step %d: %s", p->not_finite,
                 not_finite_advice(p->not_finite));
    int width = snprintf(text, sizeof text, "%-6s epoch %d/%d  step %d  loss %.4f%s%s", p->title,
                         epoch + 1, p->epochs, step, loss, times, warning);
    show(p, text, width, 1);
    if (accuracy < 0) return;
    width = snprintf(text, sizeof text, "%-6s epoch %d/%d  valid_loss %.4f  test acc %.4f",
                     p->title, epoch + 1, p->epochs, valid_loss, accuracy);
    show(p, text, width, 1);
}
