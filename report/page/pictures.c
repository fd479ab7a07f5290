/* The pictures of --pictures, each a file. */
#include "base/error.h"
#include "report/page/draw.h"

static int put_picture(const struct page *page, const struct picture_files *files, const char *name,
                       draw_function *draw, int index) {
    struct picture p = picture_of(NULL, PICTURE_SLIDE);
    CHECK(files->open(files->context, name, &p.file));
    CHECK(draw(&p, page, index));
    return files->close(files->context);
}

static int put_traffic(const struct page *page, const struct picture_files *files) {
    for (int i = 0; i < page->count; i++) {
        char name[96];
        if (!page->run[i].run || page->run[i].run->devices < 2 || !has_traffic(page, i)) continue;
        const char *mode = page->run[i].run->loss_in_forward ? "dp-loss-in-forward"
                                                             : mode_name(page->run[i].run->mode);
        snprintf(name, sizeof name, "traffic-%s.svg", mode);
        CHECK(put_picture(page, files, name, draw_links, i));
        snprintf(name, sizeof name, "matrix-%s.svg", mode);
        CHECK(put_picture(page, files, name, draw_matrix, i));
        snprintf(name, sizeof name, "moves-%s.svg", mode);
        if (has_moves(page, i)) CHECK(put_picture(page, files, name, draw_moves, i));
    }
    return OK;
}

int page_pictures(const struct page *page, const struct picture_files *files) {
    const struct {
        const char *name;
        draw_function *draw;
        int there;
    } pictures[] = {{"timeline.svg", draw_timeline, has_timeline(page)},
                    {"memory.svg", draw_memory, first_run(page) != NULL},
                    {"phases.svg", draw_phases, has_phases(page)},
                    {"loss.svg", draw_loss, has_curves(page, 0)},
                    {"accuracy.svg", draw_accuracy, has_curves(page, 1)},
                    {"equality.svg", draw_equality, has_equality(page)},
                    {"buckets.svg", draw_buckets, has_buckets(page)},
                    {"collective.svg", draw_collective, has_collective(page)}};
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++)
        if (pictures[i].there)
            CHECK(put_picture(page, files, pictures[i].name, pictures[i].draw, 0));
    return put_traffic(page, files);
}
