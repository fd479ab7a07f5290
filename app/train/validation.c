/* See validation.h. */
#include "train/validation.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* The model of a series: "gpt2-small 256" is one with samples of 256 tokens. */
static void set_model(struct run_config *c, const struct series *s) {
    struct model_options *o = &c->model.options;
    int tokens = 128, own = !strcmp(s->model, "resnet18-d2l"),
        is_transformer = !strncmp(s->model, "gpt", 3) || !strncmp(s->model, "bert", 4);
    snprintf(c->model.name, sizeof c->model.name, "%s",
             own                             ? "resnet18"
             : !strcmp(s->model, "resnet18") ? "torchvision-resnet18"
                                             : s->model);
    if (is_transformer) sscanf(s->model, "%63s %d", c->model.name, &tokens);
    if (is_transformer) c->update.optimizer = OPTIMIZER_ADAMW;
    o->sample = is_transformer ? (struct sample_shape){tokens, 1, 1}
                : own          ? (struct sample_shape){1, 64, 64}
                               : (struct sample_shape){3, 224, 224};
    o->classes = own || is_transformer ? 10 : 1000;
}

int validation_open(struct modelled *m, const struct series *s, const struct series_point *p,
                    struct clock_config *clock) {
    struct run_config c;
    int forward = s->way == SERIES_DP_FORWARD, alone = forward || s->way == SERIES_DP,
        dp = alone || s->way == SERIES_DP_TRAIN,
        ddp = s->way == SERIES_DDP || s->way == SERIES_DDP_AFTER;
    memset(m, 0, sizeof *m); /* it is closed also after an error */
    run_config_default(&c);
    c.dry = 1;
    set_model(&c, s);
    snprintf(c.data.name, sizeof c.data.name, "random");
    c.data.samples = 1 << 20;
    c.devices = p->gpus < clock->machine->gpus ? p->gpus : clock->machine->gpus;
    clock->nodes = (double)p->gpus / c.devices; /* alike */
    c.batch_size = p->batch * c.devices;
    c.mode = s->way == SERIES_FSDP  ? MODE_FSDP
             : p->gpus == 1 && !ddp ? MODE_SINGLE
             : dp                   ? MODE_DP
                                    : MODE_DDP;
    c.ddp.no_overlap = s->way == SERIES_DDP_AFTER;
    c.data.no_pin_memory = c.data.blocking_copies =
        alone; /* the copy is part of the measured step */
    clock->last_phase = forward                            ? PHASE_GATHER
                        : alone || s->way == SERIES_SINGLE ? PHASE_ALLREDUCE
                                                           : PHASE_NONE;
    clock->host = CLOCK_PYTORCH;
    clock->precision = series_precision(s);
    clock->what_if = what_if_none();
    CHECK(run_config_check(&c));
    return modelled_open(m, &c);
}
