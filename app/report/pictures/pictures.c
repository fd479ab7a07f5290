/* Writes the pictures of --pictures, each to a file. */
#include <stdio.h>

#include "base/error.h"
#include "report/pictures/draw.h"

static const struct {
    const char *name;
    draw_function *draw;
} pictures[] = {{"timeline.svg", draw_timeline}, {"memory.svg", draw_memory},
                {"phases.svg", draw_phases},     {"loss.svg", draw_loss},
                {"accuracy.svg", draw_accuracy}, {"collective.svg", draw_collective}};
enum { PICTURES = sizeof pictures / sizeof *pictures };

static int write_picture(const struct page *page, struct pictures *files, const char *name,
                         draw_function *draw, int index) {
    struct picture p = picture_of(NULL, PICTURE_SLIDE);
    const struct run_record *run = first_run(page);
    snprintf(p.about, sizeof p.about, ": %s, batch %d, %s", run->model, run->batch_size,
             run->optimizer);
    CHECK(picture_begin(files, name, &p.file));
    return picture_end(files, draw(&p, page, index));
}

int page_pictures(const struct page *page, struct pictures *files) {
    const int there[PICTURES] = {has_timeline(page), first_run(page) != NULL, has_phases(page),
                                 has_chart(page, 0), has_chart(page, 1),      has_collective(page)};
    for (int i = 0; i < PICTURES; i++)
        if (there[i]) CHECK(write_picture(page, files, pictures[i].name, pictures[i].draw, 0));
    for (int i = 0; i < page->count; i++) {
        const struct run_record *run = page->run[i].run;
        char name[40];
        if (!run || run->devices < 2 || !has_traffic(page, i)) continue;
        snprintf(name, sizeof name, "traffic-%s.svg",
                 run->loss_in_forward ? "dp-loss-in-forward" : mode_name(run->mode));
        CHECK(write_picture(page, files, name, draw_links, i));
    }
    return OK;
}
