/* The matrix of traffic: a row for each source, a column for each destination, the stronger the
 * colour the more bytes a step. */
#include "base/error.h"
#include "report/pictures/draw.h"
#include "report/text.h"

struct matrix {
    const struct run_record *run;
    int ends; /* the devices, and behind them the host */
    double x, y, cell, most;
};

static int link_of(const struct matrix *m, int end) {
    return end == m->ends - 1 ? LINK_HOST : end;
}

static double cell_bytes(const struct matrix *m, int from, int to) {
    if (from == to) return 0;
    return record_per_step(m->run,
                           (double)m->run->traffic->bytes[link_of(m, from)][link_of(m, to)]);
}

static void end_words(const struct matrix *m, int end, char text[32]) {
    if (end == m->ends - 1)
        snprintf(text, 32, "host");
    else
        snprintf(text, 32, "%d", end);
}

/* Thousands of tips would make the page slow and large; the table below has the numbers. */
enum { MOST_WITH_TIPS = 33 };

/* Four strengths of one colour: a class each would be as many colours, so the strength is the size
 * of the square in its cell, which also prints well. */
static void draw_cell(struct picture *p, const struct matrix *m, int from, int to) {
    double bytes = cell_bytes(m, from, to), share = bytes / m->most;
    double x = m->x + to * m->cell, y = m->y + from * m->cell;
    char words[32], a[32], b[32], tip[128];
    if (!(bytes > 0)) return;
    double side = (m->cell - 1) * (0.2 + 0.8 * share);
    x += (m->cell - side) / 2, y += (m->cell - side) / 2;
    if (m->ends > MOST_WITH_TIPS) {
        picture_box(p, x, y, side, side, SHADE_QUIET, NULL);
        return;
    }
    end_words(m, from, a);
    end_words(m, to, b);
    snprintf(tip, sizeof tip, "%s to %s: %s a step", a, b, bytes_words(bytes, words));
    picture_box(p, x, y, side, side, SHADE_QUIET, tip);
}

static void draw_cells(struct picture *p, const struct matrix *m) {
    for (int a = 0; a < m->ends; a++)
        for (int b = 0; b < m->ends; b++)
            draw_cell(p, m, a, b);
}

int draw_matrix(struct picture *p, const struct page *page, int index) {
    const struct run_record *r = page->run[index].run;
    struct matrix m = {.run = r, .ends = r->devices + 1};
    double f = p->font;
    if (p->form == PICTURE_WIDE) p->width *= 0.33;
    double room = (p->form == PICTURE_SLIDE ? 26 * f : p->width) - 4.5 * f;
    m.cell = room / m.ends < 5 * f ? room / m.ends : 5 * f;
    m.x = 4 * f, m.y = 4.6 * f;
    for (int a = 0; a < m.ends; a++)
        for (int b = 0; b < m.ends; b++)
            if (cell_bytes(&m, a, b) > m.most) m.most = cell_bytes(&m, a, b);
    p->height = m.y + m.ends * m.cell + 2.2 * f;
    picture_open(
        p, "matrix", "Traffic matrix",
        "Bytes from each device to each other in a step: the larger the square, the more.");
    picture_head(p, 0, 1.3 * f, "%s", page->run[index].title);
    picture_text(p, m.x, 2.8 * f, ANCHOR_START, SHADE_QUIET, "to device");
    picture_text(p, 0, 4 * f, ANCHOR_START, SHADE_QUIET, "from");
    for (int i = 0; i <= m.ends; i++) {
        double at = i * m.cell, all = m.ends * m.cell;
        if (m.ends > 20 && i % 8 && i < m.ends - 1) continue;
        picture_line(p, m.x + at, m.y, m.x + at, m.y + all, SHADE_GRID, 1);
        picture_line(p, m.x, m.y + at, m.x + all, m.y + at, SHADE_GRID, 1);
    }
    draw_cells(p, &m);
    for (int a = 0; a < m.ends; a++) {
        char text[32];
        if (a % label_every(m.ends) && a < m.ends - 1) continue;
        if (a < m.ends - 1 && a > m.ends - 4 && m.ends > 20) continue; /* the host stands there */
        end_words(&m, a, text);
        int cut = a == m.ends - 1 && m.cell < 2.4 * f; /* "host" would stand out */
        picture_text(p, cut ? m.x + m.ends * m.cell : m.x + (a + 0.5) * m.cell, m.y - 0.4 * f,
                     cut ? ANCHOR_END : ANCHOR_MIDDLE, SHADE_QUIET, "%s", text);
        picture_text(p, m.x - 0.4 * f, m.y + (a + 0.5) * m.cell + 0.36 * f, ANCHOR_END, SHADE_QUIET,
                     "%s", text);
    }
    char most[32];
    picture_text(p, 0, p->height - 0.5 * f, ANCHOR_START, SHADE_QUIET, "largest square: %s a step",
                 bytes_words(m.most, most));
    picture_close(p);
    return OK;
}
