/* Decides whether equal bits are promised. Three things break the promise: a batch that is not
 * split by virtual devices, segments that cannot be folded on each device first, and an allreduce
 * that adds in its own order. */
#include "train/compare/bits.h"

#include <stdio.h>
#include <string.h>

#include "base/fold.h"

/* `auto` chooses among the algorithms that keep the fold order. Over two devices there is one order
 * only. */
static int adds_in_its_own_order(const struct run_config *config,
                                 enum allreduce_algorithm *algorithm) {
    *algorithm = ALLREDUCE_AUTO;
    allreduce_algorithm_parse(config->ddp.allreduce, algorithm);
    return config->devices > 2 && *algorithm != ALLREDUCE_AUTO &&
           !allreduce_keeps_order(*algorithm);
}

enum allreduce_algorithm bits_order(const struct run_config *config) {
    int v = run_virtual_devices(config), follows = config->mode == MODE_DDP;
    enum allreduce_algorithm algorithm;
    /* Predicted times are PyTorch's, whose single and DP follow no allreduce. */
    follows |= !config->fold_elsewhere && !(config->dry && *config->clock.gpu);
    if (config->mode == MODE_FSDP || !follows || !adds_in_its_own_order(config, &algorithm) ||
        !allreduce_has_plan(algorithm) || v == VIRTUAL_OFF || !fold_fits(v, config->devices))
        return ALLREDUCE_AUTO;
    return algorithm;
}

void bits_order_text(const struct run_config *config, char text[SUM_ORDER_BYTES]) {
    enum allreduce_algorithm algorithm = bits_order(config);
    char cap[32] = "";
    *text = 0;
    if (algorithm == ALLREDUCE_AUTO) return;
    if (config->ddp.bucket_cap_mb >= 0)
        snprintf(cap, sizeof cap, ", buckets of %.6g MiB", config->ddp.bucket_cap_mb);
    snprintf(text, SUM_ORDER_BYTES, "%s over %d devices%s%s", allreduce_algorithm_name(algorithm),
             config->devices, cap, config->ddp.find_unused ? ", cut at the start" : "");
}

int bits_promised(const struct run_config *config, char *why_not, size_t bytes) {
    int w = run_devices(config), v = run_virtual_devices(config);
    enum allreduce_algorithm algorithm;
    *why_not = 0;
    if (v == VIRTUAL_OFF)
        snprintf(why_not, bytes,
                 "virtual devices are off: each mode cuts and sums the batch by its own device "
                 "count");
    else if (!fold_fits(v, w))
        snprintf(why_not, bytes,
                 "%d virtual devices on %d devices: %d per device is not a power of two, so sums "
                 "associate differently",
                 v, w, v / w);
    else if (adds_in_its_own_order(config, &algorithm) &&
             (algorithm == ALLREDUCE_NCCL
                  ? mode_has_ranks(config->mode)
                  : config->mode == MODE_DDP && !allreduce_has_plan(algorithm)))
        snprintf(why_not, bytes, "%s over %d devices adds in its own order",
                 allreduce_algorithm_name(algorithm), w);
    return !*why_not;
}

int bits_promised_between(const struct run_record *a, const struct run_record *b, char *why_not,
                          size_t bytes) {
    const struct run_record *runs[] = {a, b};
    *why_not = 0;
    for (int i = 0; i < 2; i++) {
        if (runs[i]->bits_promised) continue;
        snprintf(why_not, bytes, "%s", runs[i]->why_not);
        return 0;
    }
    if (strcmp(a->sum_order, b->sum_order)) {
        const char *first = *a->sum_order ? a->sum_order : "fold order";
        snprintf(why_not, bytes, "gradients added in the order of %s against %s",
                 *b->sum_order ? b->sum_order : "the fold", first);
        return 0;
    }
    if (a->virtual_devices == b->virtual_devices) return 1;
    snprintf(why_not, bytes, "%d virtual devices against %d: the batch is cut differently",
             a->virtual_devices, b->virtual_devices);
    return 0;
}
