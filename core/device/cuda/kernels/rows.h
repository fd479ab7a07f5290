/* Rows of numbers with 32 threads each, for softmax, the losses and LayerNorm. Lane l of the 32 has
 * the columns l, l + 32, ...; then the lanes' parts are added in fold order (base/fold.h). This
 * order depends only on a row's length, so a row's bits do not depend on the number of rows. */
#ifndef DEVICE_CUDA_KERNELS_ROWS_H
#define DEVICE_CUDA_KERNELS_ROWS_H

#include "device/cuda/kernels/kernel.h"

enum { ROW_LANES = 32, ROWS_A_BLOCK = 4, ROW_THREADS = ROW_LANES * ROWS_A_BLOCK };

/* Loops over the rows of a block, ROWS_A_BLOCK at a time. The bounds are the same for all its
 * threads. */
#define FOR_EACH_ROW_GROUP(first, p, at)                                \
    for (int first = (int)(at).block * ROWS_A_BLOCK; first < (p)->rows; \
         first += (int)(at).blocks * ROWS_A_BLOCK)

/* This thread's row, which may be beyond the last one, and its lane of the row. */
DUET_HD int row_of(int first, struct thread_index at) {
    return first + (int)at.thread / ROW_LANES;
}

DUET_HD int lane_of(struct thread_index at) {
    return (int)at.thread % ROW_LANES;
}

/* Lane 0's cell in shared memory, which holds the row's result after the tree. */
DUET_HD int row_cell(struct thread_index at) {
    return (int)at.thread / ROW_LANES * ROW_LANES;
}

/* Loops over the columns of this thread's row, which is empty beyond the last row. */
#define FOR_EACH_COLUMN(j, p, first, at) \
    for (int j = lane_of(at); j < (p)->columns && row_of(first, at) < (p)->rows; j += ROW_LANES)

/* The phases of a binary tree over the lanes of each row. */
#define ROW_FOLD(at, half)                          \
    for (int half = ROW_LANES / 2; half; half /= 2) \
    BLOCK_PHASE(at) if (lane_of(at) < half)

#endif
