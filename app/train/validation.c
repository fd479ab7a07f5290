/* See validation.h. */
#include "train/validation.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"

/* The phase with which the measured step ends; PHASE_NONE: a whole step. */
static enum phase last_phase(enum series_way way) {
    return way == SERIES_DP_FORWARD                   ? PHASE_GATHER
           : way == SERIES_DP || way == SERIES_SINGLE ? PHASE_ALLREDUCE
                                                      : PHASE_NONE;
}

/* The model of a series: "gpt2-small 256" has samples of 256 tokens. */
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

/* 1: several GPUs share the batch of one. */
static int is_split(const struct series *s, const struct series_point *p) {
    return s->point[0].gpus == 1 && p->batch != s->point[0].batch;
}

/* How many of the point's GPUs are in one machine. */
static int of_one_machine(const struct series_point *p, const struct machine *machine) {
    return p->gpus < machine->gpus ? p->gpus : machine->gpus;
}

static void set_run(struct run_config *c, const struct series *s, const struct series_point *p,
                    const struct machine *machine) {
    int alone = s->way == SERIES_DP_FORWARD || s->way == SERIES_DP,
        dp = alone || s->way == SERIES_DP_TRAIN,
        ddp = s->way == SERIES_DDP || s->way == SERIES_DDP_AFTER;
    run_config_default(c);
    c->dry = 1;
    set_model(c, s);
    snprintf(c->data.name, sizeof c->data.name, "random");
    c->data.samples = 1 << 20;
    c->devices = of_one_machine(p, machine);
    /* if one GPU's batch is split, the last GPU may get less */
    c->batch_size = is_split(s, p) ? s->point[0].batch : p->batch * c->devices;
    /* measured times on one GPU come from a program for one GPU */
    c->mode = s->way == SERIES_FSDP                      ? MODE_FSDP
              : p->gpus == 1 && (!ddp || p->role == 'g') ? MODE_SINGLE
              : dp                                       ? MODE_DP
                                                         : MODE_DDP;
    c->ddp.no_overlap = s->way == SERIES_DDP_AFTER;
    if (c->mode == MODE_FSDP) c->fsdp.prefetch = 0; /* as in PyTorch before 2.0 */
    c->data.no_pin_memory = alone;                  /* the copy is part of the measured step */
}

void validation_clock(const struct series *s, const struct series_point *p,
                      struct clock_config *clock) {
    clock->nodes = (double)p->gpus / of_one_machine(p, clock->machine); /* identical nodes */
    clock->last_phase = last_phase(s->way);
    clock->precision = s->precision;
    clock->what_if = what_if_none();
}

int validation_open(struct modelled *m, const struct series *s, const struct series_point *p,
                    struct clock_config *clock) {
    struct run_config c;
    memset(m, 0, sizeof *m); /* the caller closes it even after an error */
    set_run(&c, s, p, clock->machine);
    validation_clock(s, p, clock);
    CHECK(run_config_check(&c));
    return modelled_open(m, &c);
}

void validation_command(const struct series *s, const struct series_point *p,
                        const struct machine *m, struct text *text) {
    struct run_config c;
    set_run(&c, s, p, m);
    const struct model_options *o = &c.model.options;
    text_add(text, "duet estimate --gpu %s --machine %s --model %s --dataset random", m->gpu,
             m->name, c.model.name);
    text_add(text, " --shape %dx%dx%d %s %d --devices %d", o->sample.channels, o->sample.height,
             o->sample.width, is_split(s, p) ? "--batch-size" : "--batch-per-device",
             is_split(s, p) ? c.batch_size : p->batch, p->gpus);
    if (p->gpus > m->gpus) text_add(text, " --nodes %d", p->gpus / m->gpus);
    if (c.update.optimizer == OPTIMIZER_ADAMW) text_add(text, " --optimizer adamw");
    if (c.ddp.no_overlap) text_add(text, " --no-overlap");
    if (c.mode == MODE_FSDP) text_add(text, " --modes ddp,fsdp --prefetch 0");
    if (p->gpus == 1 && c.mode == MODE_DDP) text_add(text, " --modes dp,ddp");
    if (last_phase(s->way))
        text_add(text, " --until %s", s->way == SERIES_DP_FORWARD ? "forward" : "backward");
    if (c.data.no_pin_memory) text_add(text, " --no-pin-memory");
    if (s->precision) text_add(text, " --precision %s", clock_precision_name(s->precision));
    if (s->point[0].role == 'g') text_add(text, " --measured 1:%gms", s->point[0].ms);
    text_add(text, " | grep '^ *%d %s '", p->gpus, mode_title(c.mode));
}
