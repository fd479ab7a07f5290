/* The one bound of the house: devices, ranks and virtual devices number at most 64. */
#ifndef BASE_LIMITS_H
#define BASE_LIMITS_H
#define MAX_DEVICES 64
#endif
