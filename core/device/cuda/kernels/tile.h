/* The multiplication itself: a block of threads computes a tile of c, walking along the depth in
 * slabs. For each slab:
 *
 *     registers <- the next slab of a and b     by the loads of product_load.h
 *     taps <- those of the slab after next, over this slab's, which are used up
 *     acc += this slab, from shared memory      TM x TN multiply-adds of a thread for each d
 *     other half of shared memory <- registers
 *     barrier
 *
 * Shared memory holds two slabs in turn, so one barrier per slab is enough, and the loads have the
 * time of a whole slab's arithmetic to arrive. A thread owns TM x TN elements of c: for each d it
 * reads TM + TN numbers and makes TM * TN multiply-adds, so the bandwidth of shared memory does not
 * limit the kernel. Four shapes of tiles exist, because no single one fits all small layers. The
 * choice among them changes the time, never the bits. (A fifth, for runs that allow tf32, has its
 * own bits.) */
#ifndef DEVICE_CUDA_KERNELS_TILE_H
#define DEVICE_CUDA_KERNELS_TILE_H

#include "device/cuda/kernels/product_load.h"
#include "device/cuda/kernels/tf32.h"

/*               rows x cols  a thread's own  threads (across)  slab
 *   TILE_LARGE     64 x 64       8 x 4          128 (16)        16
 *   TILE_MEDIUM    32 x 32       4 x 2          128 (16)        32
 *   TILE_SMALL     16 x 16       2 x 1          128 (16)        64   few outputs, deep sums
 *   TILE_WIDE      24 x 128      12 x 4         64 (32)          8   convolutions of few channels
 *   TILE_TF32      64 x 64       32 in all      128             16   where tf32 is allowed */
enum tile { TILE_LARGE, TILE_MEDIUM, TILE_SMALL, TILE_WIDE, TILE_TF32, TILES };

DUET_CONSTANT int tile_own_rows(int tile) {
    return tile == TILE_WIDE ? 12 : tile == TILE_MEDIUM ? 4 : tile == TILE_SMALL ? 2 : 8;
}

DUET_CONSTANT int tile_own_cols(int tile) {
    return tile == TILE_MEDIUM ? 2 : tile == TILE_SMALL ? 1 : 4;
}

DUET_CONSTANT int tile_threads(int tile) {
    return tile == TILE_WIDE ? 64 : 128;
}

DUET_CONSTANT int tile_across(int tile) {
    return tile == TILE_WIDE ? 32 : 16;
}

DUET_CONSTANT int tile_slab(int tile) {
    return tile == TILE_WIDE ? 8 : tile == TILE_MEDIUM ? 32 : tile == TILE_SMALL ? 64 : 16;
}

DUET_CONSTANT int tile_rows(int tile) {
    return tile_own_rows(tile) * tile_threads(tile) / tile_across(tile);
}

DUET_CONSTANT int tile_cols(int tile) {
    return tile_own_cols(tile) * tile_across(tile);
}

/* Floats of padding after each row of a slab in shared memory, so that stores along d spread over
 * the banks. It is 16 bytes if threads read 16 bytes at once, to keep the reads aligned. */
DUET_CONSTANT int tile_pad(int tile) {
    return tile == TILE_SMALL ? 1 : tile == TILE_TF32 ? 8 : 4;
}

/* The maxima over all tiles: a thread's own elements of c; its share of a slab of a and of b, and
 * its columns of b; the depth of a slab; the floats of two slabs. */
enum {
    OWN_LIMIT = 48,
    FETCH_A_LIMIT = 8,
    FETCH_B_LIMIT = 16,
    COLUMN_LIMIT = 8,
    SLAB_LIMIT = 64,
    SHARED_FLOATS = 2 * 32 * (32 + 32 + 2 * 4)
};

struct product_shared {
    float at[SHARED_FLOATS] __attribute__((aligned(16))); /* for load_4 */
    struct tap taps[2][SLAB_LIMIT];                       /* for two slabs, in turn */
};

DUET_HD float *shared_a(int tile, float *shared, uint32_t half) {
    return shared + half * (uint32_t)(tile_slab(tile) *
                                      (tile_rows(tile) + tile_cols(tile) + 2 * tile_pad(tile)));
}

DUET_HD float *shared_b(int tile, float *shared, uint32_t half) {
    return shared_a(tile, shared, half) + tile_slab(tile) * (tile_rows(tile) + tile_pad(tile));
}

/* The indices along the width and along the depth of element e in a slab that has `width` rows (or
 * columns). */
DUET_HD uint32_t along_width(int tile, int width, int runs_along_depth, uint32_t e) {
    return runs_along_depth ? e / (uint32_t)tile_slab(tile) : e % (uint32_t)width;
}

DUET_HD uint32_t along_depth(int tile, int width, int runs_along_depth, uint32_t e) {
    return runs_along_depth ? e % (uint32_t)tile_slab(tile) : e / (uint32_t)width;
}

/* The taps of the slab at `depth`, each found by one thread, for the loads of a convolution. */
DUET_HD void find_taps(int kind, int tile, const struct product *p, uint32_t depth, uint32_t end,
                       uint32_t thread, struct tap *taps) {
    if (b_takes_taps(kind) && thread < (uint32_t)tile_slab(tile) && depth + thread < end)
        taps[thread] = tap_of(kind, p, depth + thread);
}

/* The number of columns of b that a thread has. Its element i is in column i modulo this number.
 * (The number of threads is a multiple of every slab, and of the columns or half of them, so a
 * thread's loads repeat.) */
DUET_CONSTANT int own_columns(int kind, int tile) {
    return kind == PRODUCT_CONV_WEIGHT ? tile_cols(tile) * tile_slab(tile) / tile_threads(tile)
           : tile_cols(tile) > tile_threads(tile) ? tile_cols(tile) / tile_threads(tile)
                                                  : 1;
}

DUET_HD void find_columns(int kind, int tile, const struct product *p, uint32_t col0,
                          uint32_t thread, struct column *columns) {
    DUET_UNROLL
    for (int i = 0; i < own_columns(kind, tile); i++) {
        uint32_t e = thread + (uint32_t)(i * tile_threads(tile));
        columns[i] = column_of(
            kind, p, col0 + along_width(tile, tile_cols(tile), b_runs_along_depth(kind), e));
    }
}

/* Loads this thread's share of the slab at `depth`; 0 outside of the matrices and from `end` on. If
 * elements run along the depth, all elements of a thread have the same d. */
DUET_HD void fetch(int kind, int tile, const struct product *p, uint32_t row0, uint32_t col0,
                   uint32_t depth, uint32_t end, const struct column *columns,
                   const struct tap *taps, uint32_t thread, float *a, float *b) {
    const int threads = tile_threads(tile), rows = tile_rows(tile), cols = tile_cols(tile);
    const struct depth at = depth_of(kind, p, depth + thread % (uint32_t)tile_slab(tile));
    DUET_UNROLL
    for (int i = 0; i < rows * tile_slab(tile) / threads; i++) {
        uint32_t e = thread + (uint32_t)(i * threads);
        uint32_t row = row0 + along_width(tile, rows, a_runs_along_depth(kind), e);
        uint32_t d = depth + along_depth(tile, rows, a_runs_along_depth(kind), e);
        struct entry from = entry_a(kind, p, row, d, &at);
        if (row >= p->rows || d >= end) from.kind = ENTRY_ZERO;
        a[i] = entry_load(from);
    }
    DUET_UNROLL
    for (int i = 0; i < cols * tile_slab(tile) / threads; i++) {
        uint32_t e = thread + (uint32_t)(i * threads);
        uint32_t col = col0 + along_width(tile, cols, b_runs_along_depth(kind), e);
        uint32_t step = along_depth(tile, cols, b_runs_along_depth(kind), e), d = depth + step;
        struct entry from =
            entry_b(kind, p, d, col, &columns[i % own_columns(kind, tile)], &at, &taps[step]);
        if (col >= p->cols || d >= end) from.kind = ENTRY_ZERO;
        b[i] = entry_load(from);
    }
}

/* Stores the share that fetch has loaded into one half of shared memory. */
DUET_HD void put(int kind, int tile, float *shared, uint32_t half, uint32_t thread, const float *a,
                 const float *b) {
    const int threads = tile_threads(tile), rows = tile_rows(tile), cols = tile_cols(tile);
    float *to_a = shared_a(tile, shared, half), *to_b = shared_b(tile, shared, half);
    DUET_UNROLL
    for (int i = 0; i < rows * tile_slab(tile) / threads; i++) {
        uint32_t e = thread + (uint32_t)(i * threads);
        to_a[along_depth(tile, rows, a_runs_along_depth(kind), e) *
                 (uint32_t)(rows + tile_pad(tile)) +
             along_width(tile, rows, a_runs_along_depth(kind), e)] = a[i];
    }
    DUET_UNROLL
    for (int i = 0; i < cols * tile_slab(tile) / threads; i++) {
        uint32_t e = thread + (uint32_t)(i * threads);
        to_b[along_depth(tile, cols, b_runs_along_depth(kind), e) *
                 (uint32_t)(cols + tile_pad(tile)) +
             along_width(tile, cols, b_runs_along_depth(kind), e)] = b[i];
    }
}

/* Reads `count` floats from shared memory, 16 bytes at a time if count allows. */
DUET_HD void read_own(int count, float *v, const float *from) {
    if (count % 4 == 0) {
        DUET_UNROLL
        for (int i = 0; i < count / 4; i++)
            load_4(v + 4 * i, from + 4 * i);
    } else {
        DUET_UNROLL
        for (int i = 0; i < count; i++)
            v[i] = from[i];
    }
}

/* Adds the products of one slab to the thread's own elements. */
DUET_HD void multiply(int tile, float *shared, uint32_t half, uint32_t thread, float *acc) {
    const int own_rows = tile_own_rows(tile), own_cols = tile_own_cols(tile);
    const uint32_t across = (uint32_t)tile_across(tile);
    if (tile == TILE_TF32) {
        const uint32_t a_pitch = (uint32_t)(tile_rows(tile) + tile_pad(tile));
        const uint32_t b_pitch = (uint32_t)(tile_cols(tile) + tile_pad(tile));
        DUET_UNROLL
        for (uint32_t d = 0; d < (uint32_t)tile_slab(tile); d += TF32_DEPTH)
            tf32_multiply(thread, shared_a(tile, shared, half) + d * a_pitch, a_pitch,
                          shared_b(tile, shared, half) + d * b_pitch, b_pitch, acc);
        return;
    }
    const float *a = shared_a(tile, shared, half) + thread / across * (uint32_t)own_rows;
    const float *b = shared_b(tile, shared, half) + thread % across * (uint32_t)own_cols;
    DUET_UNROLL
    for (int d = 0; d < tile_slab(tile); d++) {
        float of_a[12], of_b[4];
        read_own(own_rows, of_a, a + d * (tile_rows(tile) + tile_pad(tile)));
        read_own(own_cols, of_b, b + d * (tile_cols(tile) + tile_pad(tile)));
        DUET_UNROLL
        for (int i = 0; i < own_rows; i++) {
            DUET_UNROLL
            for (int j = 0; j < own_cols; j++)
                acc[i * own_cols + j] = fmaf(of_a[i], of_b[j], acc[i * own_cols + j]);
        }
    }
}

/* The row and column in the tile of a thread's element i. */
DUET_HD uint32_t own_row(int tile, uint32_t thread, int i) {
    if (tile == TILE_TF32) return tf32_row(thread, i);
    return thread / (uint32_t)tile_across(tile) * (uint32_t)tile_own_rows(tile) +
           (uint32_t)(i / tile_own_cols(tile));
}

DUET_HD uint32_t own_col(int tile, uint32_t thread, int i) {
    if (tile == TILE_TF32) return tf32_col(thread, i);
    return thread % (uint32_t)tile_across(tile) * (uint32_t)tile_own_cols(tile) +
           (uint32_t)(i % tile_own_cols(tile));
}

/* Stores acc into c, or into this split's partial sums. */
DUET_HD void store_own(int kind, int tile, const struct product *p, uint32_t row0, uint32_t col0,
                       uint32_t split, uint32_t thread, const float *acc) {
    DUET_UNROLL
    for (int i = 0; i < tile_own_rows(tile) * tile_own_cols(tile); i++) {
        uint32_t row = row0 + own_row(tile, thread, i), col = col0 + own_col(tile, thread, i);
        if (row >= p->rows || col >= p->cols) continue;
        if (p->splits == 1)
            store_c(kind, p, row, col, acc[i]);
        else
            p->partial[((size_t)split * p->rows + row) * p->cols + col] = acc[i];
    }
}

/* Blocks run over the row tiles first, so that blocks that share columns of b, the larger matrix,
 * run together. */
DUET_BLOCK void k_product(int kind, int tile, const struct product *p,
                          struct product_shared *memory, struct thread_index at) {
    float acc[STATES][OWN_LIMIT], a[STATES][FETCH_A_LIMIT], b[STATES][FETCH_B_LIMIT];
    struct column columns[STATES][COLUMN_LIMIT];
    uint32_t row_tile = at.block % p->row_tiles, rest = at.block / p->row_tiles;
    uint32_t split = rest / p->col_tiles, slab = (uint32_t)tile_slab(tile), half = 0;
    uint32_t row0 = row_tile * (uint32_t)tile_rows(tile),
             col0 = rest % p->col_tiles * (uint32_t)tile_cols(tile);
    uint32_t depth = split * p->split_depth;
    uint32_t end = p->depth - depth < p->split_depth ? p->depth : depth + p->split_depth;
    BLOCK_PHASE(at) {
        find_taps(kind, tile, p, depth, end, at.thread, memory->taps[0]);
        find_taps(kind, tile, p, depth + slab, end, at.thread, memory->taps[1]);
    }
    BLOCK_PHASE(at) {
        DUET_UNROLL
        for (int i = 0; i < tile_own_rows(tile) * tile_own_cols(tile); i++)
            acc[STATE(at)][i] = 0;
        find_columns(kind, tile, p, col0, at.thread, columns[STATE(at)]);
        fetch(kind, tile, p, row0, col0, depth, end, columns[STATE(at)], memory->taps[0], at.thread,
              a[STATE(at)], b[STATE(at)]);
        put(kind, tile, memory->at, 0, at.thread, a[STATE(at)], b[STATE(at)]);
    }
    for (; depth < end; depth += slab, half ^= 1) {
        BLOCK_PHASE(at) {
            int more = depth + slab < end;
            if (more)
                fetch(kind, tile, p, row0, col0, depth + slab, end, columns[STATE(at)],
                      memory->taps[half ^ 1], at.thread, a[STATE(at)], b[STATE(at)]);
            find_taps(kind, tile, p, depth + 2 * slab, end, at.thread, memory->taps[half]);
            multiply(tile, memory->at, half, at.thread, acc[STATE(at)]);
            if (more) put(kind, tile, memory->at, half ^ 1, at.thread, a[STATE(at)], b[STATE(at)]);
        }
    }
    BLOCK_PHASE(at) {
        store_own(kind, tile, p, row0, col0, split, at.thread, acc[STATE(at)]);
    }
}

/* Split-k: adds the splits' sums in order, in double, since that costs nothing here. A product may
 * have more splits than elements of c, so that few threads have many loads each. So the loads are
 * issued in groups, and the additions follow in the same order. */
enum { SPLITS_AT_ONCE = 16 };
DUET_HD void k_add_splits(int kind, const struct product *p, struct thread_index at) {
    size_t count = (size_t)p->rows * p->cols;
    for (size_t i = thread_first(at); i < count; i += thread_stride(at)) {
        uint32_t col, row = divide(p->by_cols, (uint32_t)i, &col);
        const float *part = p->partial + i;
        double sum = 0;
        uint32_t split = 0;
        for (; split + SPLITS_AT_ONCE <= p->splits; split += SPLITS_AT_ONCE) {
            float v[SPLITS_AT_ONCE];
            DUET_UNROLL
            for (uint32_t j = 0; j < SPLITS_AT_ONCE; j++)
                v[j] = part[(split + j) * count];
            DUET_UNROLL
            for (uint32_t j = 0; j < SPLITS_AT_ONCE; j++)
                sum += v[j];
        }
        for (; split < p->splits; split++)
            sum += part[split * count];
        store_c(kind, p, row, col, (float)sum);
    }
}

#endif
