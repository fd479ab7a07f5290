/* One batch of random points. A point's label is the index of the largest of its first numbers. */
#include "mlp.h"

int mlp_batch(duet_device *device, int first, int n, duet_tensor **X, duet_tensor **y) {
    float points[BATCH * FEATURES];
    int32_t labels[BATCH] = {0};
    duet_rng *rng;
    int code = duet_rng_create(&rng, 1);
    if (code) return code;
    duet_rng_normal(rng, points, BATCH * FEATURES, 0, 1);
    duet_rng_free(rng);
    for (int i = 0; i < BATCH; i++)
        for (int k = 1; k < CLASSES; k++)
            if (points[i * FEATURES + k] > points[i * FEATURES + labels[i]]) labels[i] = k;
    code =
        duet_tensor_create(X, device, DUET_F32, 2, (int[]){n, FEATURES}, points + first * FEATURES);
    return code ? code : duet_tensor_create(y, device, DUET_I32, 1, &n, labels + first);
}
