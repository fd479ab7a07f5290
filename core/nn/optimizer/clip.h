/* Clips gradients by the norm of all of them, like torch.nn.utils.clip_grad_norm_, in two launches
 * and without the host:
 *
 *     square sums    the sum of squares of each piece of the gradients
 *     clip           norm = the root of the total; gradients *= min(1, max_norm / (norm + 1e-6))
 *
 * The pieces are cut from the parameters in the order of registration, wherever their gradients
 * are. So the norm has the same bits in every mode and on any number of devices. */
#ifndef NN_CLIP_H
#define NN_CLIP_H

#include "nn/param.h"

struct grad_clip {
    struct device *device;
    int32_t *pieces; /* device memory: each piece's offset in the arena and elements */
    double *sums;    /* device memory: each piece's sum of squares */
    int count;
    uint64_t layout_version; /* layout_version of the gradients that the pieces describe */
};

/* The device must be idle. Zeroed is fine. */
void grad_clip_free(struct grad_clip *clip);

/* Enqueues both launches on the compute stream. */
int grad_clip(struct grad_clip *clip, const struct param_set *set, double max_norm);

/* Waits for the last grad_clip and returns the norm before clipping. */
int grad_clip_norm(const struct grad_clip *clip, double *norm);

#endif
