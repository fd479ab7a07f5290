/* How a byte of a picture becomes a float, the same on every kind of device. */
#ifndef DEVICE_GATHER_PIXEL_H
#define DEVICE_GATHER_PIXEL_H

struct gather_args {
    float mean, std; /* std 0: pixels stay in 0..1 */
};

/* The float of a pixel's byte, as torchvision computes it: byte / 255, then (x - mean) / std. The
 * loader's table holds these numbers, and the kernels of every kind of device give the same
 * bits. */
static inline float gather_pixel(const struct gather_args *p, unsigned char byte) {
    float x = (float)byte / 255.0f;
    return p->std > 0 ? (x - p->mean) / p->std : x;
}

#endif
