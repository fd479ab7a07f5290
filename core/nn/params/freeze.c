/* Freezes parameters, so that training does not change them: PyTorch's requires_grad_(False).
 * Frozen values come after all others and have no gradients (nn/param.h), so both arenas are laid
 * out again. That is possible only while no code relies on the gradients' addresses. */
#include "base/error.h"
#include "nn/params/params.h"

/* New arenas, with the values of the old ones. */
static int lay_out(duet_params *p) {
    struct stream *stream = device_compute(p->set.device);
    struct param_set next;
    CHECK(param_set_init(&next, p->set.device, p->specs, p->set.count));
    int code = param_set_keep_segments(&next, p->set.kept_segments);
    for (int i = 0; i < next.count && !code; i++)
        code = copy_peer(stream, next.device, next.param[i].value.data, next.device,
                         p->set.param[i].value.data, tensor_bytes(&next.param[i].value));
    if (!code) code = stream_sync(stream);
    if (code) {
        param_set_free(&next);
        return code;
    }
    next.layout_version = p->set.layout_version + 1;
    param_set_free(&p->set);
    p->set = next;
    params_show(p);
    return OK;
}

int duet_params_freeze(duet_params *params, const char *name) {
    int found = 0;
    if (!params || !name)
        return fail(ERR_USAGE, "freeze: no %s given", params ? "name was" : "parameters were");
    if (params->in_use)
        return fail(ERR_USAGE,
                    "freeze: '%.100s': too late: freeze before the first training pass, and before "
                    "an optimizer, a duet_ddp or a duet_data_parallel is made",
                    name);
    for (int i = 0; i < params->set.count; i++) {
        struct param_spec *spec = &params->specs[i];
        if (!param_is_of(spec, name)) continue;
        spec->frozen = 1;
        found = 1;
    }
    if (found) return lay_out(params);
    return fail(ERR_USAGE,
                "freeze: '%.100s': no parameter has this name, or one that begins with "
                "it and a dot",
                name);
}
