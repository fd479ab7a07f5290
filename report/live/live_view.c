/* Drawing the dashboard: see live_view.h. report/live/live_shares.c reads the page.
 *
 *     DDP x 2: lenet on fashion-mnist, batch 256                               epoch 2/3
 *     step 345/705 [=========           ] 49 %  21808 images/s  0:07 left
 *
 *     memory and busy share of each device
 *     where the time goes: device 0 and the mean of the others
 *     loss and test accuracy over the steps
 *     what the run has said */
#include "report/live/live_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "report/live/live_shares.h"
#include "trace/record.h"

enum { NAME = 9, SHARE_NAME = 18, LEAST_CHART = 7 };

static const char *device_name(const struct seen_run *run, int d, char text[24]) {
    snprintf(text, 24, "%s(%d)", run->facts.kind, d);
    return text;
}

static double images_a_second(const struct live_progress *p) {
    return p->seconds > 0 ? (double)p->images / p->seconds : 0;
}

/* ---- the parts, from top to bottom; each returns the row below it ---- */

static int draw_finished(const struct live_view *v, struct canvas *c, int row) {
    for (int i = 0; i < v->current; i++) {
        const struct seen_run *run = &v->run[i];
        const struct live_progress *p = &run->progress;
        char tested[64] = "";
        double rate = images_a_second(p);
        if (!run->begun) continue;
        if (p->last_accuracy >= 0)
            snprintf(tested, sizeof tested, "  valid_loss %.4f  test acc %.4f", p->last_valid_loss,
                     p->last_accuracy);
        canvas_text(c, row++, 0, STYLE_FAINT, "%s: step %d  loss %.4f%s  %.*f images/s  %.1f s",
                    run->facts.title, p->step, p->last_loss, tested, rate_digits(rate), rate,
                    p->seconds);
    }
    return row;
}

static int draw_head(const struct seen_run *run, struct canvas *c, int row) {
    static const char *const states[] = {"starting", "training", "evaluating", "done"};
    const struct live_facts *f = &run->facts;
    const struct live_progress *p = &run->progress;
    char epoch[64];
    int done = p->step - f->first_step, all = f->last_step - f->first_step,
        now = (p->step - (p->step > f->first_step)) / f->steps_per_epoch + 1;
    int length = snprintf(epoch, sizeof epoch, "%s, epoch %d/%d", states[p->state], now, f->epochs);
    canvas_text(c, row, 0, STYLE_HEAD, "%s x %d: %s on %s, batch %d", f->title, f->devices,
                f->model, f->dataset, f->batch_size);
    canvas_text(c, row, c->columns - length - 1, STYLE_HEAD, " %s", epoch);
    int left = done > 0 ? (int)(p->seconds / done * (all - done)) : 0;
    int at = canvas_text(c, row + 1, 0, STYLE_PLAIN, "step %d/%d ", p->step, f->last_step);
    double rate = images_a_second(p);
    char text[64];
    length =
        snprintf(text, sizeof text, " %3.0f %%  %.*f images/s  %d:%02d left",
                 all ? 100.0 * done / all : 100, rate_digits(rate), rate, left / 60, left % 60);
    canvas_bar(c, row + 1, at, c->columns - at - length, all ? (double)done / all : 1, STYLE_BAR);
    canvas_text(c, row + 1, c->columns - length, STYLE_PLAIN, "%s", text);
    return row + 3;
}

static int draw_devices(const struct seen_run *run, struct canvas *c, int row, int rows) {
    int width = (c->columns - NAME - 21 - 13) / 2;
    for (int d = 0; d < rows; d++) {
        const struct live_device *x = &run->device[d];
        char name[24], held[32], all[32], memory[72];
        if (d == rows - 1 && run->facts.devices > rows) {
            canvas_text(c, row + d, 0, STYLE_FAINT, "and %d more", run->facts.devices - d);
            break;
        }
        snprintf(memory, sizeof memory, "%s of %s", format_bytes(x->memory, held, sizeof held),
                 format_bytes(x->capacity, all, sizeof all));
        canvas_text(c, row + d, 0, STYLE_PLAIN, "%-*s%-20s ", NAME, device_name(run, d, name),
                    memory);
        canvas_bar(c, row + d, NAME + 21, width,
                   x->capacity ? (double)x->memory / (double)x->capacity : 0, STYLE_BAR);
        double busy = seen_share(run, d, SHARE_BUSY);
        canvas_text(c, row + d, NAME + 21 + width, STYLE_PLAIN, "  busy %3.0f %% ", 100 * busy);
        canvas_bar(c, row + d, NAME + 21 + width + 13, width, busy, STYLE_BAR);
    }
    return row + rows;
}

static int draw_shares(const struct seen_run *run, struct canvas *c, int row, int rows) {
    int list[SHARES], count = seen_largest_shares(run, list, rows - 1);
    int others = run->facts.devices > 1,
        width = (c->columns - SHARE_NAME - (others ? 14 : 7)) / (1 + others);
    if (rows < 2) return row;
    canvas_text(c, row, 0, STYLE_FAINT, others ? "time: device 0 | mean of the others" : "time");
    for (int i = 0; i < count; i++) {
        double first = seen_share(run, 0, list[i]);
        int at = SHARE_NAME;
        canvas_text(c, row + 1 + i, 2, STYLE_PLAIN, "%s", share_name(list[i]));
        canvas_text(c, row + 1 + i, at, STYLE_PLAIN, "%3.0f %% ", 100 * first);
        canvas_bar(c, row + 1 + i, at + 6, width, first, STYLE_BAR);
        if (!others) continue;
        double rest = seen_share_of_others(run, list[i]);
        at += 6 + width;
        canvas_text(c, row + 1 + i, at, STYLE_PLAIN, " %3.0f %% ", 100 * rest);
        canvas_bar(c, row + 1 + i, at + 7, width, rest, STYLE_BAR);
    }
    return row + 1 + count;
}

static int draw_chart(const struct seen_run *run, struct canvas *c, int row, int rows) {
    const struct live_progress *p = &run->progress;
    double loss[SEEN_BINS], at[LIVE_EPOCHS], accuracy[LIVE_EPOCHS];
    char first[32], last[48];
    if (rows < LEAST_CHART) return row;
    int column = canvas_text(c, row, 0, STYLE_LOSS, "loss");
    if (p->step > run->facts.first_step)
        column = canvas_text(c, row, column, STYLE_LOSS, " %.4f", p->last_loss);
    if (p->last_accuracy >= 0)
        canvas_text(c, row, column + 3, STYLE_ACCURACY, "o test acc %.4f   valid_loss %.4f",
                    p->last_accuracy, p->last_valid_loss);
    for (int i = 0; i < run->bins; i++)
        loss[i] = run->count[i] ? run->sum[i] / run->count[i] : NAN;
    snprintf(first, sizeof first, "step %d", run->facts.first_step);
    snprintf(last, sizeof last, "%d", run->facts.last_step);
    struct chart chart = {.row = row + 1,
                          .rows = rows - 1,
                          .columns = c->columns,
                          .loss = loss,
                          .loss_count = run->bins,
                          .accuracy = accuracy,
                          .at = at,
                          .accuracy_count = seen_accuracies(run, at, accuracy),
                          .first = first,
                          .last = last};
    canvas_chart(c, &chart);
    return row + rows;
}

/* The last lines of the text. */
static void draw_messages(struct canvas *c, int row, int rows, const char *text) {
    size_t end = text ? strlen(text) : 0;
    for (int i = rows - 1; i >= 0; i--) {
        while (end && text[end - 1] == '\n')
            end--;
        size_t start = end;
        while (start && text[start - 1] != '\n')
            start--;
        canvas_text(c, row + i, 0, STYLE_FAINT, "%.*s", (int)(end - start),
                    text ? text + start : "");
        end = start;
    }
}

/* ---- the whole ---- */

void live_view_draw(struct live_view *v, struct canvas *c, const char *messages) {
    const struct seen_run *run = v->current < 0 ? NULL : &v->run[v->current];
    int said = !messages ? 0 : c->rows >= 20 ? 2 : c->rows >= 14;
    if (!run) {
        canvas_text(c, 0, 0, STYLE_HEAD, "duet: starting");
        draw_messages(c, c->rows - said, said, messages);
        return;
    }
    int row = draw_head(run, c, draw_finished(v, c, 0));
    int left = c->rows - row - said, most = left / 4 > 1 ? left / 4 : 1;
    int devices = run->facts.devices < most ? run->facts.devices : most;
    row = draw_devices(run, c, row, devices) + 1;
    left -= devices + 1;
    int shares = left - LEAST_CHART - 2, before = row;
    if (shares > 2) row = draw_shares(run, c, row, shares < 9 ? shares : 9) + 1;
    draw_chart(run, c, row, left - (row - before));
    draw_messages(c, c->rows - said, said, messages);
}
