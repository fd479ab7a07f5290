/* Clips gradients by the norm of all of them as one vector, like torch.nn.utils.clip_grad_norm_,
 * with the same bits on every kind of device.
 *
 * The result of double additions depends on their order, so the order is fixed here for all kinds
 * of device. The squares of a piece go to CLIP_LANES sums, element i to sum i mod CLIP_LANES. Then
 * the upper half of those sums is added to the lower half until one is left. A GPU gives each sum
 * to a thread; a CPU keeps the sums in vectors. The square of a float is exact in double. */
#ifndef DEVICE_CLIP_H
#define DEVICE_CLIP_H

#include <math.h>

#ifdef __CUDACC__
#define CLIP_FUNCTION static __host__ __device__ __forceinline__
#else
#define CLIP_FUNCTION static inline
#endif

enum { CLIP_LANES = 256 };

/* PyTorch's constant. It keeps the quotient defined if all gradients are zero. */
#define CLIP_EPSILON 1e-6

/* The sum of all lanes, which are overwritten. */
CLIP_FUNCTION double clip_add_lanes(double *lane) {
    for (int half = CLIP_LANES / 2; half; half /= 2)
        for (int k = 0; k < half; k++)
            lane[k] += lane[k + half];
    return lane[0];
}

/* Computes the norm from the sums of all pieces. */
CLIP_FUNCTION double clip_norm(const double *sums, int count) {
    double all = 0;
    for (int i = 0; i < count; i++)
        all += sums[i];
    return sqrt(all);
}

/* The factor of each gradient: at most 1; NaN if the norm is NaN. */
CLIP_FUNCTION float clip_factor(double max_norm, double norm) {
    double factor = max_norm / (norm + CLIP_EPSILON);
    return factor >= 1 ? 1.0f : (float)factor;
}

#endif
