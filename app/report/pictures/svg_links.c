/* Draws traffic: the bytes that moved over each link in a step, as arrows between the devices. The
 * ledger counted these bytes. DP's devices surround the one with the most traffic; the devices of
 * other modes form a circle. Links with less than a thousandth of the most are only counted. */
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "report/pictures/draw.h"
#include "report/text.h"

enum { MOST_ARROWS = 300 }; /* more arrows could not be told apart */

int has_traffic(const struct page *page, int index) {
    const struct run_record *r = page->run[index].run;
    if (!r || !r->steps || !r->traffic) return 0;
    for (int a = 0; a < LINK_COUNT; a++)
        for (int b = 0; b < LINK_COUNT; b++)
            if (a != b && r->traffic->bytes[a][b]) return 1;
    return 0;
}

struct point {
    double x, y;
};

struct links {
    const struct run_record *run;
    struct point point[LINK_COUNT];
    double x, y;   /* centre */
    double radius; /* radius of a device */
    int crowded;   /* 1: devices are dots, some with a name next to them */
    int centre;    /* the device in the middle; -1: none */
    double most;   /* bytes over the busiest link between devices */
    double scale;  /* the same over all runs on the page, so that arrows are comparable */
    int arrows, left_out;
    int labels; /* 1: each arrow is labelled with its bytes */
    int even;   /* 1: all arrows carry the same bytes */
};

static double bytes_over(const struct run_record *r, int from, int to) {
    return from == to ? 0 : record_per_step(r, (double)r->traffic->bytes[from][to]);
}

static int is_drawn(const struct links *l, double bytes) {
    return bytes > 0 && bytes >= 1e-3 * l->most;
}

static double between(const struct run_record *r, int device) {
    double sum = 0;
    for (int other = 0; other < r->devices; other++)
        sum += bytes_over(r, device, other) + bytes_over(r, other, device);
    return sum;
}

/* The device that moved most; -1 if none moved 1.5 times as much as the others. */
static int centre_of(const struct run_record *r) {
    int most = 0;
    double all = 0;
    for (int d = 0; d < r->devices; d++) {
        all += between(r, d);
        if (between(r, d) > between(r, most)) most = d;
    }
    return r->devices > 2 && between(r, most) > 1.5 * all / r->devices ? most : -1;
}

static void place_devices(struct links *l, double x, double y, double radius) {
    int n = l->run->devices, centre = l->centre, around = n - (centre >= 0), k = 0;
    for (int d = 0; d < n; d++) {
        double turn = -M_PI / 2 + 2 * M_PI * (k + (around == 2 ? 0.25 : 0)) / around;
        if (n <= 2) turn = d ? 0 : M_PI;
        if (n == 1) radius = 0;
        l->point[d] = (struct point){x + radius * cos(turn), y + radius * sin(turn)};
        if (d == centre)
            l->point[d] = (struct point){x, y};
        else
            k++;
    }
}

static void draw_link(struct picture *p, const struct links *l, int from, int to) {
    double bytes = bytes_over(l->run, from, to);
    const struct point *a = &l->point[from], *b = &l->point[to];
    double dx = b->x - a->x, dy = b->y - a->y, length = hypot(dx, dy), r = l->radius;
    char words[32], tip[96];
    if (!is_drawn(l, bytes) || length <= 2 * r) return;
    snprintf(tip, sizeof tip, "device %d to device %d: %s per step", from, to,
             bytes_words(bytes, words));
    double bend = 0.12, ux = dx / length, uy = dy / length;
    /* Arrows start a little to the left, so that two in opposite directions do not overlap. */
    double ox = uy * r * 0.35, oy = -ux * r * 0.35;
    picture_arrow(p, a->x + ux * r + ox, a->y + uy * r + oy, b->x - ux * (r + 2) + ox,
                  b->y - uy * (r + 2) + oy, bend, SHADE_QUIET,
                  (0.8 + 5 * bytes / l->scale) * (l->crowded ? 0.15 : 1), tip);
    if (!l->labels) return;
    /* nearer to the outer end, where the arrows are further apart */
    double t = from == l->centre ? 0.62 : to == l->centre ? 0.38 : 0.5, bow = 2 * t * (1 - t);
    int flat = fabs(ux) > 0.9, under = !flat && ux < -0.7; /* below a slanted arrow */
    double off = (under ? 2.3 : 1.5) * p->font;
    double mx = a->x + t * dx + bow * bend * dy + uy * off,
           my = a->y + t * dy - bow * bend * dx - ux * off;
    if (flat) my += oy; /* else the text would lie on its arrow */
    picture_text(p, mx, my + 0.35 * p->font,
                 flat || under ? ANCHOR_MIDDLE
                 : uy > 0      ? ANCHOR_START
                               : ANCHOR_END,
                 SHADE_TEXT, "%s", words);
}

static void draw_device(struct picture *p, const struct links *l, int device) {
    const struct point *at = &l->point[device];
    picture_circle(p, at->x, at->y, l->radius, SHADE_GRID);
    if (!l->crowded) {
        picture_text(p, at->x, at->y + 0.36 * p->font, ANCHOR_MIDDLE, SHADE_TEXT, "%d", device);
    } else if (device != l->centre && device % label_every(l->run->devices) == 0) {
        double out = 1 + 1.1 * p->font / hypot(at->x - l->x, at->y - l->y);
        picture_text(p, l->x + (at->x - l->x) * out, l->y + (at->y - l->y) * out + 0.36 * p->font,
                     ANCHOR_MIDDLE, SHADE_QUIET, "%d", device);
    }
}

/* Below the arrows, in words: what they carry, if all carry the same, and what came from the host
 * and went there. */
static void say_below(struct picture *p, const struct links *l, double y) {
    const struct run_record *r = l->run;
    double in = 0, out = 0;
    char a[32], b[32];
    for (int d = 0; d < r->devices; d++)
        in += bytes_over(r, LINK_HOST, d), out += bytes_over(r, d, LINK_HOST);
    picture_text(p, 0, y, ANCHOR_START, SHADE_QUIET, "per step: %s from host memory, %s to it",
                 bytes_words(in, a), bytes_words(out, b));
    if (l->labels && !l->left_out) return;
    snprintf(b, sizeof b, l->left_out ? "; %d of under 0.1 %% left out" : " per step", l->left_out);
    picture_text(p, 0, y - 1.4 * p->font, ANCHOR_START, SHADE_TEXT,
                 l->arrows > MOST_ARROWS ? "%d links, not drawn: at most %s%s"
                 : l->even               ? "each of %d arrows: %s%s"
                                         : "%d arrows: at most %s%s",
                 l->arrows, bytes_words(l->most, a), b);
}

static struct links links_of(const struct run_record *r) {
    struct links l = {.run = r, .centre = centre_of(r)};
    double least = INFINITY;
    for (int a = 0; a < r->devices; a++)
        for (int b = 0; b < r->devices; b++)
            l.most = fmax(l.most, bytes_over(r, a, b));
    for (int a = 0; a < r->devices; a++)
        for (int b = 0; b < r->devices; b++) {
            double bytes = bytes_over(r, a, b);
            l.left_out += bytes > 0 && !is_drawn(&l, bytes);
            if (!is_drawn(&l, bytes)) continue;
            l.arrows++;
            least = fmin(least, bytes);
        }
    l.even = least > 0.99 * l.most;
    /* if all devices are linked, labels would be unreadable */
    l.labels = r->devices <= 5 && l.arrows <= 2 * r->devices && !(l.even && l.arrows > 2);
    return l;
}

static double scale_of(const struct page *page) {
    double most = 0;
    for (int i = 0; i < page->count; i++)
        if (has_traffic(page, i)) most = fmax(most, links_of(page->run[i].run).most);
    return most;
}

int draw_links(struct picture *p, const struct page *page, int index) {
    const struct run_record *r = page->run[index].run;
    struct links l = links_of(r);
    l.scale = scale_of(page);
    double f = p->font, size = p->form == PICTURE_NARROW ? p->width
                               : p->form == PICTURE_WIDE ? 0.33 * p->width
                                                         : 0.5 * p->width;
    if (p->form != PICTURE_SLIDE) p->width = size;
    double radius = r->devices <= 2 ? 0.28 * size : 0.33 * size;
    double height = r->devices <= 2 ? 9 * f : 2 * radius + 6 * f;
    l.crowded = r->devices > 16;
    l.radius = l.crowded ? 0.35 * f : r->devices > 8 ? f : 1.5 * f;
    l.x = p->width / 2, l.y = 2 * f + height / 2;
    p->height = height + (l.labels && !l.left_out ? 3.6 : 5) * f;
    picture_open(p, "links", "Traffic between devices",
                 "Bytes that moved from device to device in a step, as counted.");
    picture_head(p, 0, 1.3 * f, page->run[index].title);
    place_devices(&l, l.x, l.y, radius);
    for (int a = 0; a < r->devices && l.arrows <= MOST_ARROWS; a++)
        for (int b = 0; b < r->devices; b++)
            draw_link(p, &l, a, b);
    for (int d = 0; d < r->devices; d++)
        draw_device(p, &l, d);
    say_below(p, &l, p->height - 0.5 * f);
    picture_close(p);
    return OK;
}
