/* Philox4x32-10: random numbers without state. Four 32-bit words are a pure function of a key and
 * a counter, so any thread on any device can compute the random number of any element, with
 * nothing stored and nothing shared.
 *
 * Duet draws dropout masks this way. Backward computes the mask again instead of storing it, and
 * one, two or four devices, host or CUDA, drop the same elements. The code is valid C, C++ and CUDA
 * and uses only integers, so that every machine agrees. Source: Salmon et al., "Parallel random
 * numbers: as easy as 1, 2, 3" (SC11).
 *
 * A mask is a function of exactly these numbers, in this layout, which must never change:
 *     key     = { low half of the seed, high half }
 *     counter = { element / 4, layer, step, virtual device }
 *     word element % 4 of the result is the random number of the element
 * `element` is the index within the segment of one virtual device (row-major, below 2^34); `layer`
 * is the number of the layer among those that draw; `step` is the optimizer step. Random numbers of
 * a model (device/draw.h) use the same key and counter. */
#ifndef BASE_PHILOX_H
#define BASE_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_FUNCTION static __host__ __device__ __forceinline__
#else
#define PHILOX_FUNCTION static inline
#endif

struct philox {
    uint32_t word[4];
};

/* Ten rounds of Philox on the counter `c` under the key. */
PHILOX_FUNCTION struct philox philox4x32(struct philox c, uint32_t key0, uint32_t key1) {
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c.word[0], b = (uint64_t)0xcd9e8d57u * c.word[2];
        struct philox next = {{(uint32_t)(b >> 32) ^ c.word[1] ^ key0, (uint32_t)b,
                               (uint32_t)(a >> 32) ^ c.word[3] ^ key1, (uint32_t)a}};
        c = next;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    return c;
}

/* The random numbers of the four elements 4 * quad .. 4 * quad + 3. */
PHILOX_FUNCTION struct philox philox_quad(uint64_t seed, uint32_t virtual_device, uint32_t step,
                                          uint32_t layer, uint32_t quad) {
    struct philox counter = {{quad, layer, step, virtual_device}};
    return philox4x32(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
}

/* An event of probability p (0 to 1) happens where word < philox_threshold(p). The comparison uses
 * integers, so that no device rounds it differently. The result has 64 bits because p = 1 gives
 * 2^32. */
PHILOX_FUNCTION uint64_t philox_threshold(double p) {
    return (uint64_t)(p * 4294967296.0 + 0.5);
}

/* 1 if dropout keeps the element; threshold = philox_threshold(1 - dropout probability). This is
 * the simple form, with one element per call. The kernels take four elements at a time from
 * philox_quad and must agree with it. */
PHILOX_FUNCTION int philox_keep(uint64_t seed, uint32_t virtual_device, uint32_t step,
                                uint32_t layer, uint64_t element, uint64_t threshold) {
    struct philox four = philox_quad(seed, virtual_device, step, layer, (uint32_t)(element / 4));
    const uint32_t *w = four.word, i = (uint32_t)(element % 4);
    /* constant indices let a GPU keep the words in registers */
    return (i < 2 ? i ? w[1] : w[0] : i == 2 ? w[2] : w[3]) < threshold;
}

#endif
