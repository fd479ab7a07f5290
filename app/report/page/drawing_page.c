/* A collective by itself: see drawing_page.h. */
#include "report/page/drawing_page.h"

#include <string.h>

#include "base/error.h"
#include "report/pictures/collective.h"
#include "report/page/html.h"
#include "report/text.h"

/* "allreduce by ring: 4 ranks, 4 chunks, 1 MiB in each". */
static void title_of(const struct drawing *d, struct text *title) {
    char size[32];
    text_add(title, "%s", d->what);
    if (!strcmp(d->what, "allreduce")) text_add(title, " by %s", d->word);
    text_add(title, ": %d rank%s, %d chunk%s, %s in each", d->n, d->n == 1 ? "" : "s",
             d->hops.chunk_count, d->hops.chunk_count == 1 ? "" : "s",
             bytes_words((double)d->count * sizeof(float), size));
}

int drawing_picture(struct picture *p, const struct drawing *drawing) {
    struct text title = {.used = 0};
    title_of(drawing, &title);
    return draw_hops(p, title.words, &drawing->hops);
}

/* A table of thousands of rows helps nobody; --json has all of them. */
enum { MOST_ROWS = 1000 };

static void put_moves(FILE *file, const struct hops *h) {
    open_table(file,
               h->move_count > MOST_ROWS ? "the first moves, in order" : "every move, in order",
               "hop|from rank|to rank|what|floats");
    for (int i = 0; i < h->move_count && i < MOST_ROWS; i++) {
        const struct hop_move *m = &h->moves[i];
        if (m->from == m->to) continue;
        fprintf(
            file,
            "<tr><th scope=\"row\">%d</th><td>%d</td><td>%d</td><td>%s</td><td>%llu</td></tr>\n",
            m->hop, m->from, m->to, m->action == HOP_REDUCE ? "is added" : "is copied",
            (unsigned long long)m->count);
    }
    close_table(file);
}

int drawing_page(FILE *file, const struct drawing *drawing) {
    struct text title = {.used = 0};
    title_of(drawing, &title);
    html_start(file, title.words);
    fprintf(file, "<main><section id=\"verdict\" aria-label=\"Hop by hop\"><figure id=\"hops\">\n");
    for (int form = PICTURE_WIDE; form <= PICTURE_NARROW; form++) {
        struct picture p = picture_of(file, (enum picture_form)form);
        CHECK(drawing_picture(&p, drawing));
    }
    fprintf(file, "<figcaption>What the data of each rank (row) holds, chunk by chunk (column). A "
                  "stripe is the term of a rank; a full cell is the sum of all. Made from the plan "
                  "that the ranks run, not measured.</figcaption></figure>\n");
    put_moves(file, &drawing->hops);
    fprintf(file, "</section></main>\n<script type=\"application/json\" id=\"data\">"
                  "{\"runs\":[]}</script>\n");
    html_end(file);
    return OK;
}
