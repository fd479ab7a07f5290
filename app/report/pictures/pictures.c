/* The pictures of --pictures, each a file. */
#include <stdio.h>

#include "base/error.h"
#include "report/pictures/draw.h"

/* ---- which there are ---- */

static const struct {
    const char *name;
    draw_function *draw;
} pictures[] = {{"timeline.svg", draw_timeline}, {"memory.svg", draw_memory},
                {"phases.svg", draw_phases},     {"loss.svg", draw_loss},
                {"accuracy.svg", draw_accuracy}, {"collective.svg", draw_collective}};
enum { PICTURES = sizeof pictures / sizeof *pictures };

/* The links of each run on several devices. */
static const char *const modes[] = {"dp", "dp-loss-in-forward", "ddp"};
enum { MODES = sizeof modes / sizeof *modes };

_Static_assert(PAGE_PICTURES == PICTURES + MODES, "as many names as pictures");

static void name_traffic(char name[PICTURE_NAME], const char *mode) {
    snprintf(name, PICTURE_NAME, "traffic-%s.svg", mode);
}

int page_picture_names(char names[PAGE_PICTURES][PICTURE_NAME]) {
    int count = 0;
    for (int i = 0; i < PICTURES; i++)
        snprintf(names[count++], PICTURE_NAME, "%s", pictures[i].name);
    for (int m = 0; m < MODES; m++)
        name_traffic(names[count++], modes[m]);
    return count;
}

static const char *mode_of(const struct run_record *run) {
    return run->loss_in_forward ? modes[1] : mode_name(run->mode);
}

/* ---- writing them ---- */

struct writer {
    const struct page *page;
    const struct picture_files *files;
    struct failures all;
    int failed;
};

enum { NAMED = 3 }; /* failures that the error tells of: more would not fit into it */

static int write_picture(const struct writer *w, const char *name, draw_function *draw, int index) {
    struct picture p = picture_of(NULL, PICTURE_SLIDE);
    CHECK(w->files->open(w->files->context, name, &p.file));
    CHECK(draw(&p, w->page, index));
    return w->files->close(w->files->context);
}

static void put_picture(struct writer *w, const char *name, draw_function *draw, int index) {
    int code = write_picture(w, name, draw, index);
    if (code && w->failed++ < NAMED) failures_add(&w->all, code);
}

static void put_traffic(struct writer *w) {
    char name[PICTURE_NAME];
    for (int i = 0; i < w->page->count; i++) {
        const struct run_record *run = w->page->run[i].run;
        if (!run || run->devices < 2 || !has_traffic(w->page, i)) continue;
        name_traffic(name, mode_of(run));
        put_picture(w, name, draw_links, i);
    }
}

int page_pictures(const struct page *page, const struct picture_files *files) {
    const int there[PICTURES] = {has_timeline(page), first_run(page) != NULL, has_phases(page),
                                 has_chart(page, 0), has_chart(page, 1),      has_collective(page)};
    struct writer w = {.page = page, .files = files};
    for (int i = 0; i < PICTURES; i++)
        if (there[i]) put_picture(&w, pictures[i].name, pictures[i].draw, 0);
    put_traffic(&w);
    if (w.failed > NAMED)
        failures_add(&w.all, fail(w.all.code, "and %d more pictures", w.failed - NAMED));
    return failures_end(&w.all);
}
