/* Synthetic pictures: ten classes of 28 x 28 grey pictures that a network can learn, for machines
 * without the real files. Each picture is a pure function of (seed, set, index), so it is the same
 * on every machine and in any order. */
#ifndef DATA_SYNTHETIC_H
#define DATA_SYNTHETIC_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SYNTHETIC_SIDE = 28, SYNTHETIC_CLASSES = 10 };

/* Fills images (count, 28, 28) and labels (count), each 0 .. 9. `set` is 0 for training pictures
 * and 1 for test pictures. */
void synthetic_fill(uint64_t seed, uint32_t set, int count, uint8_t *images, uint8_t *labels);

#ifdef __cplusplus
}
#endif
#endif
