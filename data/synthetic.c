/* A picture is the digit of a pocket calculator, drawn by an unsteady hand with up to seven
 * strokes:
 *
 *      (0,0) --0-- (1,0)     Each corner is moved at random. The whole digit is scaled, sheared
 *        |           |       and shifted. Ink and pen width vary. One stray stroke and noise are
 *        1           2       added.
 *        |           |
 *      (0,1) --3-- (1,1)     So no single pixel reveals the class, similar classes (8 and 0,
 *        |           |       8 and 9, 1 and 7) differ in one stroke, and a convolution, which can
 *        4           5       find strokes, does better than a linear classifier.
 *        |           |
 *      (0,2) --6-- (1,2)
 *
 * The code uses only +, -, *, / and sqrt on doubles, which IEEE 754 rounds alike everywhere, so the
 * bytes are the same on every machine. The random numbers come from Philox, so that no picture
 * depends on another. */
#include "data/synthetic.h"

#include <math.h>
#include <stddef.h>

#include "base/philox.h"

enum { SIDE = SYNTHETIC_SIDE, CORNERS = 6, STROKES = 7 };

struct point {
    double x, y;
};

/* The random numbers of one picture, in the order in which they are used. */
struct draws {
    uint64_t seed;
    uint32_t set, index, used;
    struct philox four;
};

static uint32_t next_word(struct draws *d) {
    if (d->used % 4 == 0) d->four = philox_quad(d->seed, d->set, d->index, 0, d->used / 4);
    return d->four.word[d->used++ % 4];
}

static double between(struct draws *d, double low, double high) {
    return low + (high - low) * (next_word(d) * 0x1p-32);
}

/* Inks every pixel within `width` of the segment from a to b; the ink fades over the next pixel. */
static void draw_stroke(float *ink, struct point a, struct point b, double width, double darkness) {
    double reach = width + 1, dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy;
    int left = (int)fmax(0, fmin(a.x, b.x) - reach),
        right = (int)fmin(SIDE - 1, fmax(a.x, b.x) + reach);
    int top = (int)fmax(0, fmin(a.y, b.y) - reach),
        bottom = (int)fmin(SIDE - 1, fmax(a.y, b.y) + reach);
    for (int y = top; y <= bottom; y++) {
        for (int x = left; x <= right; x++) {
            double along = length2 > 0 ? ((x - a.x) * dx + (y - a.y) * dy) / length2 : 0;
            along = along < 0 ? 0 : along > 1 ? 1 : along;
            double ex = x - (a.x + along * dx), ey = y - (a.y + along * dy);
            double cover = reach - sqrt(ex * ex + ey * ey);
            double dark = darkness * (cover < 0 ? 0 : cover > 1 ? 1 : cover);
            if (dark > ink[y * SIDE + x]) ink[y * SIDE + x] = (float)dark;
        }
    }
}

static void draw_digit(struct draws *d, int digit, float *ink) {
    static const int ends[STROKES][2] = {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {2, 4}, {3, 5}, {4, 5}};
    static const char *strokes_of[SYNTHETIC_CLASSES] = {
        "012456", "25", "02346", "02356", "1235", "01356", "013456", "025", "0123456", "012356"};
    /* width is that of the digit; height is that of its upper or lower half */
    double width = between(d, 5, 9), height = between(d, 6, 9);
    double across = between(d, -0.25, 0.25), down = between(d, -0.15, 0.15); /* shear */
    double middle_x = 13.5 + between(d, -3, 3), middle_y = 13.5 + between(d, -3, 3);
    double pen = between(d, 0.4, 1.4), darkness = between(d, 110, 255);
    struct point corner[CORNERS];
    for (int i = 0; i < CORNERS; i++) {
        double x = (i % 2 - 0.5) * width + between(d, -1.2, 1.2),
               y = (i / 2 - 1) * height + between(d, -1.2, 1.2);
        corner[i].x = middle_x + x + across * y;
        corner[i].y = middle_y + y + down * x;
    }
    for (const char *s = strokes_of[digit]; *s; s++)
        draw_stroke(ink, corner[ends[*s - '0'][0]], corner[ends[*s - '0'][1]], pen, darkness);
    struct point from = {between(d, 0, 27), between(d, 0, 27)};
    struct point to = {from.x + between(d, -6, 6), from.y + between(d, -6, 6)};
    draw_stroke(ink, from, to, between(d, 0.2, 0.8), between(d, 60, 200));
}

/* Adds noise between -31 and 31, small values being likelier: the sum of two random bytes, centred
 * and divided by 8. Two words give the noise of four pixels. */
static void add_noise(struct draws *d, const float *ink, uint8_t *image) {
    for (int i = 0; i < SIDE * SIDE; i += 4) {
        uint32_t a = next_word(d), b = next_word(d);
        for (int k = 0; k < 4; k++) {
            int noise = ((int)(a >> 8 * k & 255) + (int)(b >> 8 * k & 255) - 255) / 8;
            int value = (int)ink[i + k] + noise;
            image[i + k] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
}

void synthetic_fill(uint64_t seed, uint32_t set, int count, uint8_t *images, uint8_t *labels) {
    for (int i = 0; i < count; i++) {
        struct draws d = {seed, set, (uint32_t)i, 0, {{0}}};
        float ink[SIDE * SIDE] = {0};
        labels[i] = (uint8_t)(next_word(&d) % SYNTHETIC_CLASSES);
        draw_digit(&d, labels[i], ink);
        add_noise(&d, ink, images + (size_t)i * SIDE * SIDE);
    }
}
