/* Executors of GPUs: not there yet. */
#include "allreduce/executor.h"
#include "base/error.h"

static size_t flags_bytes(int n) {
    return (size_t)n * 128;
}

static int refuse(const struct executor_question *question, const struct executor_ops **ops,
                  struct allreduce_link *link) {
    (void)ops;
    (void)link;
    return fail(ERR_FAILED, "allreduce on %s: this build runs it on emulated devices only: use --device cpu",
                device_name(question->device));
}

static int clear(struct device *device, void *flags, size_t bytes) {
    (void)flags;
    (void)bytes;
    struct executor_question question = {.device = device};
    return refuse(&question, NULL, NULL);
}

static const struct executor_kind kind = {.flags_bytes = flags_bytes, .clear = clear, .choose = refuse};
const struct executor_kind *const cuda_executors = &kind;
