/* Copies plans and ranks to the GPU piece by piece, through pinned memory. */
#include "allreduce/cuda/spin_memory.h"

#include <stdio.h>
#include <string.h>

#include "allreduce/cuda/upload.h"

size_t spin_plan_bytes(const struct plan *plan) {
    return sizeof(struct spin_plan) + (size_t)plan->step_count * sizeof(struct plan_step);
}

/* As many steps at a time as the staging memory holds. */
int spin_write_plan(struct cuda_device *d, void *staging, char *memory, const struct plan *plan) {
    struct spin_plan head = {.steps = (uint32_t)plan->step_count, .epochs = plan->epochs};
    const int piece = SPIN_STAGING / (int)sizeof(struct plan_step);
    memcpy(staging, &head, sizeof head);
    CHECK(cuda_upload(d, memory, staging, sizeof head));
    for (int i = 0; i < plan->step_count; i += piece) {
        int count = plan->step_count - i < piece ? plan->step_count - i : piece;
        size_t bytes = (size_t)count * sizeof(struct plan_step);
        memcpy(staging, &plan->steps[i], bytes);
        CHECK(cuda_upload(d, memory + sizeof head + (size_t)i * sizeof(struct plan_step), staging,
                          bytes));
    }
    return OK;
}

int spin_write_rank(struct cuda_device *d, void *staging, struct spin_rank *memory,
                    const struct spin_rank *rank) {
    memcpy(staging, rank, sizeof *rank);
    return cuda_upload(d, memory, staging, sizeof *rank);
}

void spin_describe(const struct spin_page *page, char *text, size_t text_bytes) {
    snprintf(text, text_bytes, "%s, step %d of its plan: %s %llu, seen %llu, channel %u",
             allreduce_algorithm_name((enum allreduce_algorithm)page->algorithm), page->plan_step,
             plan_flag_name((enum plan_flag)page->kind), (unsigned long long)page->expected,
             (unsigned long long)page->seen, page->channel);
}
