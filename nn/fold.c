/* The tree order of summing: see fold.h. Pure integers, but for the sum of doubles itself. */
#include "nn/fold.h"

#include "base/limits.h"

static int half(int n) {
    return (n + 1) / 2;
}

int fold_fits(int virtual_devices, int devices) {
    if (devices < 1 || virtual_devices < 1 || virtual_devices % devices) return 0;
    int segments = virtual_devices / devices;
    return devices == 1 || (segments & (segments - 1)) == 0;
}

double fold_sum(double *x, int n) {
    if (n < 1) return 0;
    for (int h; n > 1; n = h) {
        h = half(n);
        for (int r = 0; r + h < n; r++)
            x[r] += x[r + h];
    }
    return x[0];
}

/* What is being written while the tree is walked from its root to its leaves. */
struct walk {
    struct fold_step *steps;
    int count;
    int buffers;
};

/* Makes term r of the n[level] terms left after `level` halvings into buffer `to`. */
static void make_term(struct walk *w, const int *n, int level, int r, int to) {
    if (w->buffers < to + 1) w->buffers = to + 1;
    if (level == 0) {
        w->steps[w->count++] = (struct fold_step){.add = 0, .term = r, .to = to};
        return;
    }
    make_term(w, n, level - 1, r, to);
    int partner = r + n[level]; /* n[level] = ceil(n[level-1] / 2) */
    if (partner >= n[level - 1]) return;
    make_term(w, n, level - 1, partner, to + 1);
    w->steps[w->count++] = (struct fold_step){.add = 1, .to = to, .from = to + 1};
}

int fold_schedule(int n, struct fold_step *steps, int *buffers) {
    *buffers = 0;
    if (n < 1 || n > MAX_DEVICES) return 0;
    int left[8], levels = 0; /* left[l]: terms left after l halvings */
    for (left[0] = n; left[levels] > 1; levels++)
        left[levels + 1] = half(left[levels]);
    struct walk w = {.steps = steps};
    make_term(&w, left, levels, 0, 0);
    *buffers = w.buffers;
    return w.count;
}
