/* See validation.h. */
#include "train/validation.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

const char *validation_missing(const struct series *s) {
    if (!strncmp(s->model, "gpt", 3) || !strncmp(s->model, "bert", 4)) return "no such model here";
    return NULL;
}

int validation_open(struct modelled *m, const struct series *s, const struct series_point *p,
                    struct clock_config *clock) {
    struct run_config c;
    int forward = s->way == SERIES_DP_FORWARD, dp = forward || s->way == SERIES_DP,
        own = !strcmp(s->model, "resnet18-d2l");
    memset(m, 0, sizeof *m); /* it is closed also after an error */
    run_config_default(&c);
    c.dry = 1;
    snprintf(c.model, sizeof c.model, "%s",
             own                             ? "resnet18"
             : !strcmp(s->model, "resnet18") ? "torchvision-resnet18"
                                             : s->model);
    snprintf(c.dataset, sizeof c.dataset, "random");
    c.model_options.sample =
        own ? (struct sample_shape){1, 64, 64} : (struct sample_shape){3, 224, 224};
    c.model_options.classes = own ? 10 : 1000;
    c.samples = 1 << 20;
    c.devices = p->gpus < clock->machine->gpus ? p->gpus : clock->machine->gpus;
    clock->nodes = (double)p->gpus / c.devices; /* alike */
    c.batch_size = p->batch * c.devices;
    c.mode = p->gpus == 1 && s->way != SERIES_DDP ? MODE_SINGLE : dp ? MODE_DP : MODE_DDP;
    c.no_pin_memory = c.blocking_copies = dp; /* the copy is part of the measured step */
    clock->last_phase = forward                         ? PHASE_GATHER
                        : dp || s->way == SERIES_SINGLE ? PHASE_ALLREDUCE
                                                        : PHASE_NONE;
    clock->host = CLOCK_PYTORCH;
    clock->what_if = what_if_none();
    CHECK(run_config_check(&c));
    return modelled_open(m, &c);
}
