/* Floats of 16 bits: IEEE's half, and bfloat16, the upper half of a float. Conversions round to
 * nearest even. */
#ifndef BASE_HALF_H
#define BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline uint32_t bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of_bf16(uint16_t x) {
    return float_of_bits((uint32_t)x << 16);
}
static inline uint16_t bf16_of_float(float x) {
    uint32_t bits = bits_of_float(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40); /* a quiet NaN */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

/* A half is scaled into the exponents of a float and back; the multiplication handles
 * subnormals: 2^-112 = 0x07800000, 2^112 = 0x77800000. */
static inline float float_of_f16(uint16_t x) {
    uint32_t sign = (uint32_t)(x & 0x8000u) << 16, rest = (uint32_t)(x & 0x7fffu) << 13;
    float scaled = float_of_bits(rest) * float_of_bits(0x77800000u);
    if (rest >= 0x0f800000u) scaled = float_of_bits(rest | 0x7f800000u); /* infinity, NaN */
    return float_of_bits(bits_of_float(scaled) | sign);
}
static inline uint16_t f16_of_float(float x) {
    uint32_t bits = bits_of_float(x), sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (bits >> 13 & 0x1ffu));
    if (bits >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to 65536 or more */
    if (bits < 0x38800000u) { /* below 2^-14: adding 0.5 leaves the bits of a subnormal half */
        uint32_t low = bits_of_float(float_of_bits(bits) + 0.5f) - 0x3f000000u;
        return (uint16_t)(sign | low);
    }
    bits += 0xfffu + (bits >> 13 & 1);
    return (uint16_t)(sign | (bits - 0x38000000u) >> 13);
}

#endif
