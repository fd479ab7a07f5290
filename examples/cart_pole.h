/* CartPole-v1: a pole on a cart, as Barto, Sutton and Anderson describe it and gymnasium computes
 * it. The random numbers are those of numpy's default generator, so a seed gives the same
 * starts. */
#ifndef EXAMPLES_CART_POLE_H
#define EXAMPLES_CART_POLE_H

#include <math.h>
#include <stdint.h>

enum { STATE = 4, MOST_STEPS = 500 };

struct pole {
    double x[STATE]; /* position, velocity, angle, angular velocity */
    unsigned __int128 state, step;
    int steps;
};

static const uint64_t HIGH = 0x2360ed051fc65da4, LOW = 0x4385df649fccf645;

static inline uint32_t hash(uint32_t value, uint32_t *h, uint32_t factor) {
    value ^= *h;
    *h *= factor;
    value *= *h;
    return value ^ value >> 16;
}

static inline uint32_t mix(uint32_t x, uint32_t y) {
    uint32_t r = 0xca01f9ddu * x - 0x4973f715u * y;
    return r ^ r >> 16;
}

static inline uint64_t draw(struct pole *p) {
    p->state = p->state * ((unsigned __int128)HIGH << 64 | LOW) + p->step;
    uint64_t x = (uint64_t)(p->state >> 64) ^ (uint64_t)p->state;
    unsigned turn = (unsigned)(p->state >> 122);
    return x >> turn | x << (-turn & 63);
}

/* numpy's PCG64, seeded by its SeedSequence. */
static inline void seed_pole(struct pole *p, uint64_t seed) {
    uint32_t pool[4], words[8], h = 0x43b0d7e5u;
    for (int i = 0; i < 4; i++)
        pool[i] = hash(i < 2 ? (uint32_t)(seed >> 32 * i) : 0, &h, 0x931e8875u);
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 4; to++)
            if (from != to) pool[to] = mix(pool[to], hash(pool[from], &h, 0x931e8875u));
    h = 0x8b51f9ddu;
    for (int i = 0; i < 8; i++)
        words[i] = hash(pool[i % 4], &h, 0x58f38dedu);
    unsigned __int128 w[4];
    for (int i = 0; i < 4; i++)
        w[i] = (uint64_t)words[2 * i + 1] << 32 | words[2 * i];
    p->step = (w[2] << 64 | w[3]) << 1 | 1;
    p->state = 0;
    draw(p);
    p->state += w[0] << 64 | w[1];
    draw(p);
}

static inline void reset(struct pole *p) {
    for (int i = 0; i < STATE; i++)
        p->x[i] = -0.05 + (0.05 - -0.05) * (double)(draw(p) >> 11) * 0x1p-53;
    p->steps = 0;
}

/* One step of 0.02 s under a force. Returns 1 at the end of the episode. */
static inline int move(struct pole *p, int action) {
    const double gravity = 9.8, total = 0.1 + 1.0, half = 0.5, pole = 0.1 * 0.5;
    double *x = p->x, force = action ? 10.0 : -10.0, c = cos(x[2]), s = sin(x[2]);
    double t = (force + pole * (x[3] * x[3]) * s) / total;
    double angular = (gravity * s - c * t) / (half * (4.0 / 3.0 - 0.1 * (c * c) / total));
    double linear = t - pole * angular * c / total;
    x[0] += 0.02 * x[1];
    x[1] += 0.02 * linear;
    x[2] += 0.02 * x[3];
    x[3] += 0.02 * angular;
    return fabs(x[0]) > 2.4 || fabs(x[2]) > 12 * 2 * M_PI / 360 || ++p->steps == MOST_STEPS;
}

#endif
