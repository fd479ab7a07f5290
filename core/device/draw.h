/* Random numbers of a model, written once for all kinds of device. An element's number comes from
 * the words of its quad in base/philox.h, so every device and every mode draws the same numbers. */
#ifndef DEVICE_DRAW_H
#define DEVICE_DRAW_H

#include "base/philox.h"
#include "device/elementary.h"

/* Uniform in [0, 1), in steps of 2^-24. */
EVERY_DEVICE float draw_uniform(uint32_t word) {
    return (float)(word >> 8) * 0x1p-24f;
}

/* Draws from the normal distribution by the method of Box and Muller: two words give a distance and
 * a direction. An even element and the odd one after it get that distance times the sine and the
 * cosine of the direction. The largest result is 6.7. */
EVERY_DEVICE float draw_normal(uint32_t distance, uint32_t direction, int odd) {
    const uint32_t quarters = (direction + (1u << 29)) >> 30;
    const double rest = (double)(int32_t)(direction - (quarters << 30)) * 0x1p-30,
                 size = sqrt(-2 * elementary_log(((double)distance + 1) * 0x1p-32));
    return (float)(size * elementary_sin_of_turns((uint64_t)quarters + (uint64_t) !!odd, rest));
}

#endif
