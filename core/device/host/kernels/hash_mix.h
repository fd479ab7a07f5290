/* A hash shows whether two devices hold the same tensor. It is the sum over all elements of
 * mix(bits, index), mod 2^64. Integer addition gives the same sum in any order, so a device may add
 * its elements in any order. The index in the mix reveals exchanged elements.
 *
 * The mixer is the finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom
 * number generators", 2014): each input bit flips each output bit with a probability close to one
 * half. Its input is bits + (index + 1) * HASH_STEP, and HASH_STEP comes from the golden ratio: for
 * up to 10^9 elements its multiples are further apart than any 32 bits of data reach, so no two
 * pairs (bits, index) have the same input. The code is valid C, C++ and CUDA. */
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

/* The mix of the float32 with these bits at `index` in the row-major tensor. */
HASH_FUNCTION uint64_t hash_mix(uint32_t bits, uint64_t index) {
    uint64_t z = bits + (index + 1) * HASH_STEP;
    z = (z ^ (z >> 30)) * HASH_MUL1;
    z = (z ^ (z >> 27)) * HASH_MUL2;
    return z ^ (z >> 31);
}

#endif
