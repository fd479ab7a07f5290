/* An image is a seven-segment digit, drawn by an unsteady hand with up to seven strokes:
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
 * All sizes are in pixels of a 28 x 28 image and are stretched to the digit's cell: the whole
 * image, or a half or a third of its width if there are more than 10 or 100 classes. Each of
 * several channels has its own ink.
 *
 * The code uses only +, -, *, / and sqrt on doubles, which IEEE 754 rounds alike everywhere, so the
 * bytes are the same on every machine. The random numbers come from Philox, so that no image
 * depends on another. */
#include "data/synthetic.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/philox.h"

enum { SIDE = 28, CORNERS = 6, STROKES = 7 };

/* The position of a digit: x pixels from the left, stretched by these factors. */
struct cell {
    double left, across, down;
};

/* The image that is being drawn: darkness of each pixel, row-major. */
struct canvas {
    int height, width;
    float *ink;
};

struct point {
    double x, y;
};

/* The random numbers of one image, in the order in which they are used. */
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
static void draw_stroke(struct canvas *c, struct point a, struct point b, double width,
                        double darkness) {
    double reach = width + 1, dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy;
    int left = (int)fmax(0, fmin(a.x, b.x) - reach),
        right = (int)fmin(c->width - 1, fmax(a.x, b.x) + reach);
    int top = (int)fmax(0, fmin(a.y, b.y) - reach),
        bottom = (int)fmin(c->height - 1, fmax(a.y, b.y) + reach);
    for (int y = top; y <= bottom; y++) {
        for (int x = left; x <= right; x++) {
            double along = length2 > 0 ? ((x - a.x) * dx + (y - a.y) * dy) / length2 : 0;
            along = along < 0 ? 0 : along > 1 ? 1 : along;
            double ex = x - (a.x + along * dx), ey = y - (a.y + along * dy);
            double cover = reach - sqrt(ex * ex + ey * ey);
            double dark = darkness * (cover < 0 ? 0 : cover > 1 ? 1 : cover);
            float *ink = &c->ink[(size_t)y * (size_t)c->width + (size_t)x];
            if (dark > *ink) *ink = (float)dark;
        }
    }
}

static struct point placed(const struct cell *cell, double x, double y) {
    return (struct point){cell->left + x * cell->across, y * cell->down};
}

/* The narrower side determines the width of the pen. */
static double pen_scale(const struct cell *cell) {
    return fmin(cell->across, cell->down);
}

static void draw_digit(struct draws *d, int digit, const struct cell *cell, struct canvas *c) {
    static const int ends[STROKES][2] = {{0, 1}, {0, 2}, {1, 3}, {2, 3}, {2, 4}, {3, 5}, {4, 5}};
    static const char *strokes_of[SYNTHETIC_CLASSES] = {
        "012456", "25", "02346", "02356", "1235", "01356", "013456", "025", "0123456", "012356"};
    /* width of the digit; height of its upper or lower half */
    double width = between(d, 5, 9), height = between(d, 6, 9);
    double across = between(d, -0.25, 0.25), down = between(d, -0.15, 0.15); /* shear */
    double middle_x = 13.5 + between(d, -3, 3), middle_y = 13.5 + between(d, -3, 3);
    double pen = between(d, 0.4, 1.4), darkness = between(d, 110, 255);
    struct point corner[CORNERS];
    for (int i = 0; i < CORNERS; i++) {
        double x = (i % 2 - 0.5) * width + between(d, -1.2, 1.2),
               y = (i / 2 - 1) * height + between(d, -1.2, 1.2);
        corner[i] = placed(cell, middle_x + x + across * y, middle_y + y + down * x);
    }
    for (const char *s = strokes_of[digit]; *s; s++)
        draw_stroke(c, corner[ends[*s - '0'][0]], corner[ends[*s - '0'][1]], pen * pen_scale(cell),
                    darkness);
}

static void draw_stray_stroke(struct draws *d, struct canvas *c) {
    const struct cell all = {0, (double)c->width / SIDE, (double)c->height / SIDE};
    double x = between(d, 0, 27), y = between(d, 0, 27);
    double to_x = x + between(d, -6, 6), to_y = y + between(d, -6, 6);
    double darkness = between(d, 60, 200), pen = between(d, 0.2, 0.8);
    draw_stroke(c, placed(&all, x, y), placed(&all, to_x, to_y), pen * pen_scale(&all), darkness);
}

/* Writes the ink, times `strength`, with noise between -31 and 31, small values being likelier: the
 * sum of two random bytes, centred and divided by 8. Two words give the noise of four pixels. */
static void print(struct draws *d, const struct canvas *c, float strength, uint8_t *image) {
    int count = c->height * c->width;
    for (int i = 0; i < count; i += 4) {
        uint32_t a = next_word(d), b = next_word(d);
        for (int k = 0; k < 4 && i + k < count; k++) {
            int noise = ((int)(a >> 8 * k & 255) + (int)(b >> 8 * k & 255) - 255) / 8;
            int value = (int)(c->ink[i + k] * strength) + noise;
            image[i + k] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
    }
}

static void draw_picture(struct draws *d, const struct synthetic *what, int label, struct canvas *c,
                         uint8_t *image) {
    size_t plane = (size_t)c->height * (size_t)c->width;
    int digits = what->classes <= 10 ? 1 : what->classes <= 100 ? 2 : 3;
    double width = (double)c->width / digits;
    memset(c->ink, 0, plane * sizeof *c->ink);
    for (int i = digits - 1, rest = label; i >= 0; i--, rest /= 10) {
        const struct cell cell = {i * width, width / SIDE, (double)c->height / SIDE};
        draw_digit(d, rest % 10, &cell, c);
    }
    draw_stray_stroke(d, c);
    for (int k = 0; k < what->shape.channels; k++)
        print(d, c, what->shape.channels > 1 ? (float)between(d, 0.3, 1) : 1,
              image + (size_t)k * plane);
}

int synthetic_fill(const struct synthetic *what, int count, uint8_t *images, uint8_t *labels) {
    size_t each = sample_shape_count(&what->shape);
    struct canvas c = {what->shape.height, what->shape.width, NULL};
    c.ink = malloc((size_t)c.height * (size_t)c.width * sizeof *c.ink);
    if (!c.ink) return fail(ERR_MEMORY, "synthetic images: out of host memory");
    for (int i = 0; i < count; i++) {
        struct draws d = {what->seed, what->set, (uint32_t)i, 0, {{0}}};
        labels[i] = (uint8_t)(next_word(&d) % (uint32_t)what->classes);
        draw_picture(&d, what, labels[i], &c, images + (size_t)i * each);
    }
    free(c.ink);
    return OK;
}
