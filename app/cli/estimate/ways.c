/* The ways to train, side by side: see ways.h. */
#include "cli/estimate/ways.h"

#include <stdio.h>
#include <stdlib.h>

#include "cli/results/files.h"
#include "report/text.h"
#include "train/compare/compare.h"
#include "train/shared_data.h"

static const struct {
    const char *name, *key;
    enum run_mode mode;
    int loss_in_forward, shard;
} ways[WAYS] = {{"single", "single", MODE_SINGLE, 0, 0},
                {"DP", "dp", MODE_DP, 0, 0},
                {"DP, loss in forward", "dp_loss_in_forward", MODE_DP, 1, 0},
                {"DDP", "ddp", MODE_DDP, 0, 0},
                {"FSDP, only the optimizer's state (ZeRO 1)", "fsdp_optimizer", MODE_FSDP, 0, 0},
                {"FSDP, also gradients (ZeRO 2)", "fsdp_gradients", MODE_FSDP, 0, 1},
                {"FSDP", "fsdp", MODE_FSDP, 0, 2}};

const char *way_name(int way) {
    return ways[way].name;
}

const char *way_brief(int way) {
    static const char *const brief[WAYS] = {
        [WAY_LOSS_IN_FORWARD] = "DP, fwd loss", [WAY_ZERO_1] = "ZeRO 1", [WAY_ZERO_2] = "ZeRO 2"};
    return brief[way] ? brief[way] : ways[way].name;
}

const char *way_key(int way) {
    return ways[way].key;
}

enum run_mode way_mode(int way) {
    return ways[way].mode;
}

const char *way_title(int way, const struct run_config *config, char text[WAY_TITLE]) {
    int dp = ways[way].mode == MODE_DP, n = snprintf(text, WAY_TITLE, "%s", ways[way].name);
    if (dp && config->dp.output_device)
        n += snprintf(text + n, WAY_TITLE - (size_t)n, ", output device %d",
                      config->dp.output_device);
    if (dp && config->dp.sharded_reduce)
        snprintf(text + n, WAY_TITLE - (size_t)n, ", sharded reduce");
    return text;
}

void way_apply(int way, struct run_config *config) {
    config->mode = ways[way].mode;
    config->dp.loss_in_forward = ways[way].loss_in_forward;
    config->fsdp.shard = ways[way].shard;
}

struct ways *ways_new(const struct run_config *config) {
    struct ways *all = calloc(1, sizeof *all);
    if (!all) return fail(ERR_MEMORY, "the records of the runs: out of host memory"), NULL;
    all->config = config;
    return all;
}

void ways_free(struct ways *all) {
    for (int i = 0; all && i < WAYS; i++)
        record_free(&all->run[i]);
    free(all);
}

const struct run_record *way_run(const struct ways *all, int way) {
    return all->run[way].devices ? &all->run[way] : NULL;
}

/* ---- what fits ---- */

void way_note_full(struct ways *all, int way, const struct run_config *config, int width) {
    snprintf(all->full[way], sizeof all->full[way], "%s", error_message());
    record_free(&all->run[way]);
    all->need[way] = need_of(config);
    printf("\n%s does not fit:\n", ways[way].name);
    text_wrap(stdout, width, 2, 2, all->full[way]);
    fflush(stdout);
}

static void fits(struct text *text, int way, const struct run_record *r) {
    char most[32], all[32];
    uint64_t peak = 0, capacity = 0;
    for (int d = 0; d < r->devices; d++)
        if (r->device[d].memory.total_peak > peak) {
            peak = r->device[d].memory.total_peak;
            capacity = r->device[d].memory.capacity;
        }
    text_add(text, "%s: fits, with at most %s of %s on a device", ways[way].name,
             format_bytes(peak, most, sizeof most), format_bytes(capacity, all, sizeof all));
}

/* What PyTorch holds is printed for these; the others are details. */
static const char *const in_pytorch[WAYS] = {[WAY_DP] = "DataParallel",
                                             [WAY_DDP] = "DDP",
                                             [WAY_ZERO_1] = "DDP with ZeroRedundancyOptimizer",
                                             [WAY_ZERO_2] =
                                                 "fully_shard, reshard_after_forward=False",
                                             [WAY_FSDP] = "fully_shard"};

/* PyTorch's DDP counts with its default; a model that fits here need not fit there. */
static void pytorch_fits(struct text *text, const struct as_pytorch *p, int way,
                         const struct run_config *config) {
    uint64_t most = 0;
    int full = -1;
    char bytes[32], all[32];
    for (int d = 0; d < p->devices; d++) {
        if (p->device[d].total_peak > most) most = p->device[d].total_peak;
        if (full < 0 && p->device[d].total_peak > run_device_memory(config, d)) full = d;
    }
    text_add(text, "PyTorch's %s: ", in_pytorch[way]);
    if (full < 0)
        text_add(text, "fits, with at most %s on a device",
                 format_bytes(most, bytes, sizeof bytes));
    else
        text_add(text, "does not fit: it holds %s on device %d, which has %s",
                 format_bytes(p->device[full].total_peak, bytes, sizeof bytes), full,
                 format_bytes(run_device_memory(config, full), all, sizeof all));
    if (way == WAY_DDP || way == WAY_ZERO_1)
        text_add(text, " (with its default, gradient_as_bucket_view=False)");
}

void ways_show_what_fits(const struct ways *all, const struct run_config *config, int width) {
    text_wrap(stdout, width, 0, 2, "what fits where");
    for (int i = 0; i < WAYS; i++) {
        struct text text = {""};
        char needs[NEED_WORDS];
        if (*all->full[i])
            text_add(&text, "%s: does not fit%s", ways[i].name, need_words(&all->need[i], needs));
        else if (way_run(all, i))
            fits(&text, i, way_run(all, i));
        if (*text.words) text_wrap(stdout, width, 2, 4, text.words);
        text = (struct text){""};
        if (!all->pytorch[i].devices || !config->device_memory_count || !in_pytorch[i]) continue;
        pytorch_fits(&text, &all->pytorch[i], i, config);
        text_wrap(stdout, width, 2, 4, text.words);
    }
}

/* ---- beside PyTorch ---- */

int ways_count_as_pytorch(struct ways *all, const struct run_config *config) {
    struct run_config c = *config, outline;
    struct dataset set;
    int can;
    c.data.join = 0; /* PyTorch's memory depends neither on this nor on the kind of device */
    snprintf(c.device, sizeof c.device, "cpu");
    snprintf(c.ddp.allreduce, sizeof c.ddp.allreduce, "auto");
    CHECK(need_outline(&c, &outline, &can));
    if (!can) return OK;
    CHECK(run_open_set(&outline, &set, 1));
    if (outline.batch_size > set.count) outline.batch_size = set.count;
    dataset_free(&set);
    for (int i = 0; i < WAYS; i++) {
        if (compare_leaves_out(config, ways[i].mode)) continue;
        if (!config->as_pytorch && !in_pytorch[i]) continue;
        way_apply(i, &outline);
        CHECK(as_pytorch(&outline, &all->pytorch[i]));
    }
    return OK;
}

static struct beside_pytorch beside(const struct ways *all, int way) {
    return (struct beside_pytorch){.title = way_brief(way),
                                   .duet = way_run(all, way),
                                   .devices = all->pytorch[way].devices,
                                   .pytorch = all->pytorch[way].device,
                                   .saved = all->pytorch[way].saved};
}

void ways_add_model(struct text *text, const struct run_config *config) {
    const struct model_options *o = &config->model.options;
    const char *name = config->model.name;
    const struct sample_shape s = o->sample.channels ? o->sample : model_sample(name, o);
    text_add(text, "%s", name);
    if (!o->own && model_is_outline(name) && s.height == 1)
        text_add(text, " of %d tokens", s.channels);
}

struct profiled ways_profiled(const struct ways *all, int details) {
    return (struct profiled){.dp = way_run(all, WAY_DP),
                             .loss_in_forward = way_run(all, WAY_LOSS_IN_FORWARD),
                             .ddp = way_run(all, WAY_DDP),
                             .details = details,
                             .dp_beside = beside(all, WAY_DP),
                             .ddp_beside = beside(all, WAY_DDP)};
}

void ways_show_beside_pytorch(const struct ways *all, const struct run_config *config) {
    if (!config->as_pytorch) return;
    for (int i = 0; i < WAYS; i++) {
        const struct beside_pytorch both = beside(all, i);
        if (config->details || in_pytorch[i]) beside_pytorch_table(stdout, &both);
    }
    text_wrap(
        stdout, text_width(stdout), 0, 2,
        "PyTorch: computed from what each op saves for backward, in eager mode, with a batch "
        "from host memory and the defaults of PyTorch 2. The workspace of kernels, temporary "
        "memory of optimizer.step and the caching allocator's rounding come on top. For --params, "
        "and for an exported model whose ops save other tensors than Duet's, only the sum that "
        "autograd saves is known, not when it is freed, so PyTorch's peak is less certain");
}

/* ---- JSON ---- */

static void write_pytorch(const struct as_pytorch *p, struct json_writer *w) {
    json_array(w, "as_pytorch");
    for (int d = 0; d < p->devices; d++) {
        json_object(w, NULL);
        json_integer(w, "device", d);
        json_integer(w, "memory_peak", (int64_t)p->device[d].total_peak);
        json_integer(w, "saved_by_autograd", (int64_t)p->saved[d]);
        record_write_causes(w, "memory_peak_by_cause", p->device[d].peak);
        record_write_causes(w, "memory_at_peak_by_cause", p->device[d].at_peak);
        json_close(w);
    }
    json_close(w);
}

void ways_write(const void *what, struct json_writer *w) {
    const struct ways *all = what;
    json_array(w, "runs");
    for (int i = 0; i < WAYS; i++) {
        if (!way_run(all, i) && !*all->full[i]) continue; /* the way was left out */
        results_run(w, ways[i].key, ways[i].name, all->full[i], &all->run[i]);
        if (all->config->as_pytorch) write_pytorch(&all->pytorch[i], w);
        json_close(w);
    }
    json_close(w);
}
