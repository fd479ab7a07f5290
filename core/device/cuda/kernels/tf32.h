/* Tensor cores, for runs that allow tf32. Numbers are rounded to 10 bits of mantissa before they
 * are multiplied; products and sums stay in float. A warp multiplies a 16 x 8 matrix by an 8 x 8
 * matrix in one instruction (mma.sync m16n8k8), for which each lane holds fixed elements. With g =
 * lane / 4 and t = lane % 4 they are:
 *
 *     a0 a1    (row g, d t)         (row g + 8, d t)
 *     a2 a3    (row g, d t + 4)     (row g + 8, d t + 4)
 *     b0 b1    (d t, col g)         (d t + 4, col g)
 *     c0 c1    (row g, col 2t)      (row g, col 2t + 1)
 *     c2 c3    (row g + 8, col 2t)  (row g + 8, col 2t + 1)
 *
 * (PTX manual, "Matrix fragments for mma.m16n8k8"). A block of 4 warps covers a tile of 64 x 64.
 * Each warp covers 32 x 32 of it, 2 products down by 4 across, so a lane holds 32 elements. On the
 * host loops replace the instruction: they assemble the matrices from all lanes' elements by the
 * table above, and multiply them. The hardware's rounding inside the instruction's sums is not
 * specified. */
#ifndef DEVICE_CUDA_KERNELS_TF32_H
#define DEVICE_CUDA_KERNELS_TF32_H

#include "device/cuda/kernels/kernel.h"

enum { TF32_DEPTH = 8, TF32_DOWN = 2, TF32_ACROSS = 4 };

/* The row and column of a lane's element i in the tile. The element is c[i % 4] of the product at i
 * / 16 down and i / 4 % 4 across. */
DUET_HD uint32_t tf32_row(uint32_t thread, int i) {
    return thread / 64 * 32 + (uint32_t)(i / 16 * 16) + thread % 32 / 4 + (uint32_t)(i % 4 / 2 * 8);
}

DUET_HD uint32_t tf32_col(uint32_t thread, int i) {
    return thread / 32 % 2 * 32 + (uint32_t)(i / 4 % 4 * 8) + thread % 4 * 2 + (uint32_t)(i % 2);
}

/* The nearest float with 10 bits of mantissa, ties away from zero, as its bits. */
DUET_HD uint32_t tf32_of(float x) {
#ifdef __CUDA_ARCH__
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
#else
    uint32_t bits = bits_of(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
#endif
}

/* Offsets in a slab, which has a row of `pitch` floats for each d: for a[i % 4] of the product i /
 * 4 down, and for b[i % 2] of the product i / 2 across. */
DUET_HD uint32_t tf32_at_a(uint32_t thread, int i, uint32_t pitch) {
    return (thread % 4 + (uint32_t)(i % 4 / 2 * 4)) * pitch + thread / 64 * 32 + thread % 32 / 4 +
           (uint32_t)(i / 4 * 16 + i % 2 * 8);
}

DUET_HD uint32_t tf32_at_b(uint32_t thread, int i, uint32_t pitch) {
    return (thread % 4 + (uint32_t)(i % 2 * 4)) * pitch + thread / 32 % 2 * 32 + thread % 32 / 4 +
           (uint32_t)(i / 2 * 8);
}

#ifdef __CUDA_ARCH__

static __device__ __forceinline__ void tf32_mma(float *c, const uint32_t *a, const uint32_t *b) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Adds the products of TF32_DEPTH steps of a slab to the thread's 32 elements. */
static __device__ __forceinline__ void tf32_multiply(uint32_t thread, const float *a,
                                                     uint32_t a_pitch, const float *b,
                                                     uint32_t b_pitch, float *acc) {
    uint32_t of_a[TF32_DOWN][4], of_b[TF32_ACROSS][2];
    DUET_UNROLL
    for (int i = 0; i < 4 * TF32_DOWN; i++)
        of_a[i / 4][i % 4] = tf32_of(a[tf32_at_a(thread, i, a_pitch)]);
    DUET_UNROLL
    for (int i = 0; i < 2 * TF32_ACROSS; i++)
        of_b[i / 2][i % 2] = tf32_of(b[tf32_at_b(thread, i, b_pitch)]);
    DUET_UNROLL
    for (int i = 0; i < TF32_DOWN * TF32_ACROSS; i++)
        tf32_mma(acc + 4 * i, of_a[i / 4], of_b[i % 4]);
}

#else

DUET_HD float tf32_float(float x) {
    union {
        uint32_t u;
        float f;
    } both;
    both.u = tf32_of(x);
    return both.f;
}

/* The instruction as the manual describes it, in loops: 16 x 8 by 8 x 8, from the registers of 32
 * lanes. */
DUET_HD void tf32_multiply(uint32_t thread, const float *a, uint32_t a_pitch, const float *b,
                           uint32_t b_pitch, float *acc) {
    const uint32_t g = thread % 32 / 4, t = thread % 4, warp = thread / 32 * 32;
    for (int product = 0; product < TF32_DOWN * TF32_ACROSS; product++) {
        float of_a[16][8], of_b[8][8];
        int down = product / TF32_ACROSS, across = product % TF32_ACROSS;
        for (uint32_t lane = 0; lane < 32; lane++) {
            for (int j = 0; j < 4; j++)
                of_a[lane / 4 + (uint32_t)(j % 2 * 8)][lane % 4 + (uint32_t)(j / 2 * 4)] =
                    tf32_float(a[tf32_at_a(warp + lane, 4 * down + j, a_pitch)]);
            for (int j = 0; j < 2; j++)
                of_b[lane % 4 + (uint32_t)(j * 4)][lane / 4] =
                    tf32_float(b[tf32_at_b(warp + lane, 2 * across + j, b_pitch)]);
        }
        for (int j = 0; j < 4; j++)
            for (int d = 0; d < TF32_DEPTH; d++)
                acc[4 * product + j] =
                    fmaf(of_a[g + (uint32_t)(j / 2 * 8)][d], of_b[d][2 * t + (uint32_t)(j % 2)],
                         acc[4 * product + j]);
    }
}

#endif
#endif
