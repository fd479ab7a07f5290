/* Philox4x32-10: random numbers without a state. Four words are a pure function of a key and a
 * counter, so any thread, on any device, computes the numbers of any element with nothing stored
 * and nothing shared. Duet draws dropout masks this way: the mask in backward is computed again,
 * not kept, and one, two or four devices, host or CUDA, drop the same elements. Source: Salmon
 * et al., "Parallel random numbers: as easy as 1, 2, 3" (SC11). Plain C, C++ and CUDA; 32-bit
 * integers only, so that every machine agrees.
 *
 * The layout, fixed for good, since a mask is a pure function of exactly these:
 *     key     = { seed low, seed high }
 *     counter = { element / 4, layer, step, virtual device }
 *     the number of an element is word element % 4
 * `element` counts within the share of one virtual device (its segment of the layer's
 * activation, row-major), below 2^34; `layer` counts the drawing layers of the model; `step` the
 * optimizer steps of the run. */
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

/* Ten rounds on the counter `c` under the key. */
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

/* The four words of elements 4 `quad` .. 4 `quad` + 3. */
PHILOX_FUNCTION struct philox philox_quad(uint64_t seed, uint32_t virtual_device, uint32_t step,
                                          uint32_t layer, uint32_t quad) {
    struct philox counter = {{quad, layer, step, virtual_device}};
    return philox4x32(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
}

/* An event of probability p in 0..1 happens where word < philox_threshold(p). The comparison is
 * in integers, so that no device rounds it differently; 2^32 (always) needs the 64 bits. */
PHILOX_FUNCTION uint64_t philox_threshold(double p) {
    return (uint64_t)(p * 4294967296.0 + 0.5);
}

/* 1 if the element is kept, with threshold = philox_threshold(1 - dropout probability). The
 * plain form, one element a call; a kernel takes four at a time from philox_quad and must agree
 * with it. */
PHILOX_FUNCTION int philox_keep(uint64_t seed, uint32_t virtual_device, uint32_t step,
                                uint32_t layer, uint64_t element, uint64_t threshold) {
    struct philox four = philox_quad(seed, virtual_device, step, layer, (uint32_t)(element / 4));
    return four.word[element % 4] < threshold;
}

#endif
