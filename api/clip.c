/* Clipping of gradients by their norm, for programs; nn/optimizer/clip.h says how. */
#include "api/api.h"

int duet_clip_grad_norm(duet_params *params, double max_norm, double *norm) {
    if (norm) *norm = 0;
    if (!params) return fail(ERR_USAGE, "clip: no parameters were given");
    if (!(max_norm >= 0)) /* NaN too */
        return fail(ERR_USAGE, "clip: max_norm %g: give at least 0", max_norm);
    CHECK(grad_clip(&params->clip, &params->set, max_norm));
    return norm ? grad_clip_norm(&params->clip, norm) : OK;
}
