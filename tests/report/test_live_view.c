/* The picture of --live without a terminal: bars and curves on a canvas, and what a view makes of a
 * page that somebody else writes. */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "report/live/live_shares.h"
#include "report/live/live_view.h"
#include "tests/harness/harness.h"

static uint32_t at(const struct canvas *c, int row, int column) {
    return c->cell[(size_t)row * (size_t)c->columns + (size_t)column].c;
}

/* The canvas as text, of which the test looks for pieces. */
static char *text_of(const struct canvas *c) {
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    canvas_print(c, file);
    fclose(file);
    return text;
}

static void has(const struct canvas *c, const char *piece) {
    char *text = text_of(c);
    cr_expect(strstr(text, piece), "'%s' is not in\n%s", piece, text);
    free(text);
}

Test(live_view, bars, .timeout = 10) {
    struct canvas c = {.utf8 = 0};
    cr_assert_eq(canvas_resize(&c, 2, 14), OK);
    canvas_bar(&c, 0, 1, 12, 0.52, STYLE_BAR);
    canvas_bar(&c, 1, 8, 12, 1, STYLE_BAR); /* its end is cut off */
    has(&c, " [#####     ]\n        [#####\n");
    c.utf8 = 1;
    cr_assert_eq(canvas_resize(&c, 1, 12), OK);
    canvas_bar(&c, 0, 0, 12, 0.525, STYLE_BAR); /* 5 and a quarter of 10 */
    cr_expect(at(&c, 0, 5) == 0x2588 && at(&c, 0, 6) == 0x258e && at(&c, 0, 7) == ' ');
    canvas_bar(&c, 0, 0, 12, NAN, STYLE_BAR);
    has(&c, "[          ]");
    canvas_bar(&c, 0, 0, 12, 7, STYLE_BAR);
    cr_expect(at(&c, 0, 10) == 0x2588 && at(&c, 0, 11) == ']');
    canvas_free(&c);
}

/* A loss that falls evenly from 8 to 0 in 40 columns, and accuracies at both ends of the scale. */
Test(live_view, curves, .timeout = 10) {
    enum { LABEL = 9, WIDE = 40, ROWS = 9 };
    double loss[WIDE], at_end[] = {0, 1}, accuracy[] = {1, 0};
    for (int i = 0; i < WIDE; i++)
        loss[i] = i % 7 == 3 ? NAN : 8.0 * (WIDE - 1 - i) / (WIDE - 1);
    struct chart chart = {.rows = ROWS + 1,
                          .columns = LABEL + WIDE + 5,
                          .loss = loss,
                          .loss_count = WIDE,
                          .accuracy = accuracy,
                          .at = at_end,
                          .accuracy_count = 2,
                          .first = "0",
                          .last = "40"};
    struct canvas c = {.utf8 = 0};
    cr_assert_eq(canvas_resize(&c, ROWS + 1, LABEL + WIDE + 5), OK);
    canvas_chart(&c, &chart);
    for (int x = 1; x < WIDE - 1; x++) {
        int stars = 0, row = 0;
        for (int y = 0; y < ROWS; y++)
            if (at(&c, y, LABEL + x) == '*') stars++, row = y;
        cr_expect_eq(stars, x % 7 != 3, "column %d", x);
        if (stars) cr_expect_eq(row, (int)lround(8 - loss[x]), "column %d", x);
    }
    cr_expect(at(&c, 0, LABEL) == 'o' && at(&c, ROWS - 1, LABEL + WIDE - 1) == 'o');
    has(&c, "      8 |o");
    has(&c, "      0 |");
    c.utf8 = 1;
    cr_assert_eq(canvas_resize(&c, ROWS + 1, LABEL + WIDE + 5), OK);
    canvas_chart(&c, &chart);
    for (int x = 1; x < WIDE - 1; x++) /* two columns of dots each, 36 rows of dots */
        for (int y = 0; y < ROWS; y++)
            cr_expect(at(&c, y, LABEL + x) == ' ' ||
                      (at(&c, y, LABEL + x) > 0x2800 && at(&c, y, LABEL + x) < 0x2900));
    canvas_free(&c);
}

/* A page as a run of `devices` writes it. */
static struct live_run *begin_run(struct live_page *page, int i, int devices, int steps) {
    struct live_run *run = &page->run[i];
    run->facts = (struct live_facts){.mode = MODE_DDP,
                                     .title = "DDP",
                                     .model = "lenet",
                                     .dataset = "mnist",
                                     .kind = "cpu",
                                     .devices = devices,
                                     .batch_size = 256,
                                     .last_step = steps,
                                     .steps_per_epoch = steps / 2,
                                     .epochs = 2};
    run->progress = (struct live_progress){.state = LIVE_TRAINING, .last_accuracy = -1};
    run->begun = 1;
    return run;
}

static void write_losses(struct live_run *run, int count, double loss) {
    for (int i = 0; i < count; i++, run->losses++)
        run->loss[run->losses % LIVE_LOSSES] = loss;
    run->progress.step = (int)run->losses;
    run->progress.last_loss = loss;
}

static void write_device(struct live_run *run, int d, double seconds, double busy) {
    struct live_device *x = &run->device[d];
    x->memory = 3U << 20;
    x->capacity = 12U << 20;
    x->phase_ns[PHASE_FORWARD] += (int64_t)(1e9 * busy * (seconds - (double)x->trained_ns * 1e-9));
    x->busy_ns = x->phase_ns[PHASE_FORWARD];
    x->trained_ns = (int64_t)(seconds * 1e9);
}

Test(live_view, what_a_page_says, .timeout = 10) {
    struct live_page *page = calloc(1, sizeof *page);
    struct live_view *view;
    struct canvas c = {.utf8 = 0};
    cr_assert(page && !live_view_new(&view) && !canvas_resize(&c, 24, 80));
    live_view_read(view, page);
    live_view_draw(view, &c, "said\n");
    has(&c, "duet: starting");
    struct live_run *run = begin_run(page, 0, 2, 20000);
    double seconds = 0;
    for (int i = 0; i < 10; i++) { /* busy for a quarter, then for three quarters of the time */
        seconds += 0.5;
        for (int d = 0; d < 2; d++)
            write_device(run, d, seconds, i < 5 ? 0.25 : 0.75);
        write_losses(run, 100, i == 4 ? NAN : 2);
        live_view_read(view, page);
    }
    run->progress.images = 1000 * 256;
    run->progress.seconds = seconds;
    live_view_read(view, page);
    cr_assert_eq(canvas_resize(&c, 24, 80), OK);
    live_view_draw(view, &c, "one\ntwo\nthree\n");
    has(&c, "DDP x 2: lenet on mnist, batch 256");
    has(&c, "training, epoch 1/2\n");
    has(&c, "step 1000/20000 [");
    has(&c, "  5 %  51200 images/s  1:35 left\n");
    has(&c, "cpu(1)   3 MiB of 12 MiB      [####            ]  busy  75 % [############    ]\n");
    has(&c, "  forward          75 % [");
    has(&c, "  idle             25 % [");
    has(&c, "loss 2.0000\n");
    has(&c, "two\nthree\n");
    /* at the end shares are those of the whole run; more losses than the ring holds leave a gap */
    write_losses(run, 19000, 1);
    run->progress.state = LIVE_DONE;
    run->progress.last_accuracy = run->epoch[0].accuracy = 0.5;
    run->progress.last_valid_loss = 1.5;
    run->epoch[0].step = 10000;
    run->progress.epochs = 1;
    live_view_read(view, page);
    cr_assert_eq(canvas_resize(&c, 24, 80), OK);
    live_view_draw(view, &c, NULL);
    has(&c, "done, epoch 2/2\n");
    has(&c, "busy  50 %");
    has(&c, "loss 1.0000   o test acc 0.5000   valid_loss 1.5000\n");
    has(&c, " 100 %  ");
    /* of the next run, with more devices than rows, the one before stands above it */
    run = begin_run(page, 1, 64, 10);
    for (int d = 0; d < 64; d++)
        write_device(run, d, 1, 0.5);
    live_view_read(view, page);
    cr_assert_eq(canvas_resize(&c, 24, 80), OK);
    live_view_draw(view, &c, NULL);
    has(&c, "DDP: step 20000  loss 1.0000  valid_loss 1.5000  test acc 0.5000  51200 images/s");
    has(&c, "DDP x 64: lenet");
    has(&c, " more\n");
    for (int rows = 1; rows < 40; rows++) /* every size of a window will do */
        for (int columns = 1; columns < 130; columns += 3)
            for (c.utf8 = 0; c.utf8 < 2; c.utf8++) {
                cr_assert_eq(canvas_resize(&c, rows, columns), OK);
                live_view_draw(view, &c, "one\ntwo");
            }
    canvas_free(&c);
    live_view_free(view);
    free(page);
}

/* ---- one writes while another reads ---- */

static void *write_again_and_again(void *argument) {
    struct live_device *d = argument;
    for (int64_t i = 1; i <= 200000; i++) {
        live_write_begin(&d->version);
        __atomic_store_n(&d->trained_ns, i, __ATOMIC_RELEASE);
        __atomic_store_n(&d->busy_ns, 2 * i, __ATOMIC_RELEASE);
        __atomic_store_n(&d->phase_ns[PHASE_PROOF], 3 * i, __ATOMIC_RELEASE);
        live_write_end(&d->version);
    }
    return NULL;
}

Test(live_view, numbers_that_belong_together_are_read_together, .timeout = 60) {
    struct live_device d = {.version = 0}, copy = {.version = 0};
    pthread_t writer;
    int whole = 0;
    cr_assert_eq(pthread_create(&writer, NULL, write_again_and_again, &d), 0);
    do {
        if (!live_read_device(&copy, &d)) continue;
        whole++;
        cr_assert(copy.busy_ns == 2 * copy.trained_ns &&
                      copy.phase_ns[PHASE_PROOF] == 3 * copy.trained_ns,
                  "%ld", (long)copy.trained_ns);
    } while (copy.trained_ns < 200000);
    pthread_join(writer, NULL);
    cr_expect_gt(whole, 0);
}
