/* The one order of summing over devices, docs/design.md section 2 rule 1.
 *
 * With n terms, term r takes in term r + ceil(n/2), then the same on the lower half:
 *
 *     n = 5, h = 3:   0+=3  1+=4  2        n = 3, h = 2:   0+=2  1       n = 2, h = 1:   0+=1
 *
 * With n terms spread over W devices as v mod W, where each has 2^k of them, the first k
 * halvings pair terms of one device: folding locally first and over the devices afterwards gives
 * the very same sums. */
#ifndef NN_FOLD_H
#define NN_FOLD_H

#ifdef __cplusplus
extern "C" {
#endif

/* 1 if folding V terms over W devices locally first keeps the order: W = 1, W = V or V/W a power
 * of two. */
int fold_fits(int virtual_devices, int devices);

/* Folds x[0..n) in place in tree order; returns the sum (0 for n = 0). */
double fold_sum(double *x, int n);

/* The same, depth first, for terms that are made one at a time: steps[] lists what to do with a
 * small stack of buffers. The result is in buffer 0; buffers used: at most 1 + ceil(log2 n).
 * Returns the number of steps, 2n - 1, or 0 where n is not in 1..MAX_DEVICES. */
struct fold_step {
    int add; /* 0: make term `term` into buffer `to`; 1: buffer `to` += buffer `from` */
    int term, to, from;
};
int fold_schedule(int n, struct fold_step *steps /* [2 * MAX_DEVICES] */, int *buffers);

#ifdef __cplusplus
}
#endif
#endif
