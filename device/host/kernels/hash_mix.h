/* The hash that proves two devices hold the same tensor: the sum over all elements of mix(bits,
 * index) mod 2^64. A sum has no order, so any device may add its elements as it likes and still
 * get the same 64 bits; the index, mixed in, makes two exchanged elements visible. The mixer is
 * splitmix64's finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
 * 2014): every input bit flips each output bit with probability close to one half. Multiples of
 * the golden ratio keep neighbouring indices further apart than any 32 bits of data reach, up to
 * 10^9 elements, so no two (bits, index) share an input. Plain C, C++, CUDA. */
#ifndef DEVICE_HOST_KERNELS_HASH_MIX_H
#define DEVICE_HOST_KERNELS_HASH_MIX_H

#include <stdint.h>

#ifdef __CUDACC__
#define HASH_FUNCTION static __host__ __device__ __forceinline__
#else
#define HASH_FUNCTION static inline
#endif

#define HASH_STEP 0x9e3779b97f4a7c15u
#define HASH_MUL1 0xbf58476d1ce4e5b9u
#define HASH_MUL2 0x94d049bb133111ebu

/* `bits` of the float32 at `index` of the plain tensor. */
HASH_FUNCTION uint64_t hash_mix(uint32_t bits, uint64_t index) {
    uint64_t z = bits + (index + 1) * HASH_STEP;
    z = (z ^ (z >> 30)) * HASH_MUL1;
    z = (z ^ (z >> 27)) * HASH_MUL2;
    return z ^ (z >> 31);
}

#endif
