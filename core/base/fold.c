/* Sums in fold order, and the depth-first fold; see fold.h. */
#include "base/fold.h"

double fold_sum(double *x, int n) {
    for (struct fold f = fold_begin(n); fold_next(&f);)
        x[f.to] += x[f.from];
    return n > 0 ? x[0] : 0;
}

struct sum_order fold_order(int n) {
    struct sum_order order = {.n = n};
    int count = 0;
    for (struct fold f = fold_begin(n); fold_next(&f);)
        order.add[count++] = (struct addition){(uint8_t)f.to, (uint8_t)f.from};
    return order;
}

int fold_fits(int virtual_devices, int devices) {
    if (devices < 1 || virtual_devices < 1 || virtual_devices % devices) return 0;
    int segments = virtual_devices / devices;
    return devices == 1 || (segments & (segments - 1)) == 0;
}

/* ---- depth first ---- */

struct walk {
    struct fold_step *steps;
    int count;   /* steps written */
    int buffers; /* buffers that they use */
};

/* Writes the steps that make term r, as it is after `level` halvings, in buffer `to`. n[l] is
 * the number of terms after l halvings. */
static void make_term(struct walk *w, const int *n, int level, int r, int to) {
    if (w->buffers < to + 1) w->buffers = to + 1;
    if (level == 0) {
        w->steps[w->count++] = (struct fold_step){.add = 0, .term = r, .to = to};
        return;
    }
    make_term(w, n, level - 1, r, to);
    int partner = r + n[level];
    if (partner >= n[level - 1]) return;
    make_term(w, n, level - 1, partner, to + 1);
    w->steps[w->count++] = (struct fold_step){.add = 1, .to = to, .from = to + 1};
}

_Static_assert(MAX_DEVICES <= 1 << (FOLD_MAX_BUFFERS - 1), "a fold needs more buffers");

int fold_schedule(int n, struct fold_step *steps, int *buffers) {
    *buffers = 0;
    if (n < 1 || n > MAX_DEVICES) return 0;
    int left[FOLD_MAX_BUFFERS], levels = 0; /* left[l]: terms after l halvings */
    for (left[0] = n; left[levels] > 1; levels++)
        left[levels + 1] = fold_half(left[levels]);
    struct walk w = {.steps = steps};
    make_term(&w, left, levels, 0, 0);
    *buffers = w.buffers;
    return w.count;
}
