/* duet estimate of a graph: its memory beside that of the PyTorch model from which it was exported.
 * Duet keeps fewer tensors for backward than autograd does. What autograd saves stands in the graph
 * (its line `saves`), so the same run is estimated once more with a model that keeps as much. */
#include "cli/beside_pytorch.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "models/graph.h"
#include "report/text.h"
#include "train/estimate.h"

/* The run with a model of the same sizes that keeps what autograd saves. */
static struct run_config as_pytorch(const struct run_config *config, const struct graph *g) {
    struct run_config c = *config;
    struct model_options *o = &c.model_options;
    snprintf(c.model, sizeof c.model, "described");
    o->sample = (struct sample_shape){g->model.sample[0], g->model.sample[1], g->model.sample[2]};
    o->classes = graph_classes(g);
    o->own = NULL;
    o->params = graph_elements(g, 1);
    o->buffers = graph_elements(g, 0);
    o->activation_bytes = (uint64_t)g->pytorch_sample;
    c.device_memory_count = 0; /* its size is asked for, whether it fits or not */
    return c;
}

static void print_way(const char *name, const struct run_record *duet, uint64_t more,
                      const struct run_record *pytorch) {
    char text[4][32];
    int last = duet->devices - 1;
    uint64_t sizes[4] = {record_peak(duet, 0, 0), record_peak(duet, 1, last),
                         record_peak(pytorch, 0, 0) + more, record_peak(pytorch, 1, last) + more};
    for (int i = 0; i < 4; i++)
        format_bytes(sizes[i], text[i], sizeof text[i]);
    if (last < 1) snprintf(text[1], sizeof text[1], "-"), snprintf(text[3], sizeof text[3], "-");
    printf("%-16s %14s %14s %14s %14s\n", name, text[0], text[1], text[2], text[3]);
}

static int show_way(const struct run_config *config, const struct graph *g, const struct ways *ways,
                    int way) {
    struct run_config c = as_pytorch(config, g);
    struct run_record *record = calloc(1, sizeof *record);
    if (!record) return fail(ERR_MEMORY, "estimate: no host memory");
    way_apply(way, &c);
    int code = estimate_prepare(&c);
    if (!code) code = estimate_run(&c, record);
    uint64_t buckets = way == WAY_DDP ? 4 * (uint64_t)c.model_options.params : 0;
    if (!code)
        print_way(way_name(way), way_run(ways, way), buckets + (uint64_t)g->pytorch_shared, record);
    record_free(record);
    free(record);
    return code;
}

int beside_pytorch(const struct run_config *config, const struct ways *ways, int width) {
    const struct graph *g = graph_of(config->model_options.own);
    struct text text = {.used = 0};
    if (!g || g->pytorch_sample < 0) return OK;
    printf("\n%-16s %29s %29s\n", "at its peak", "Duet", "PyTorch eager");
    printf("%-16s %14s %14s %14s %14s\n", "", "device 0", "the others", "device 0", "the others");
    if (way_run(ways, WAY_DP)) CHECK(show_way(config, g, ways, WAY_DP));
    if (way_run(ways, WAY_DDP)) CHECK(show_way(config, g, ways, WAY_DDP));
    text_add(&text, "PyTorch eager: with what autograd saves, as the graph's line `saves` has it, "
                    "and in DDP a second copy of the gradients in its buckets, its default. It "
                    "takes at least that: gradients on their way back, the workspace of kernels "
                    "and what its allocator rounds up come on top");
    text_wrap(stdout, width, 0, 2, text.words);
    return OK;
}
