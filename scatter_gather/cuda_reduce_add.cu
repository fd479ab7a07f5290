/* Reduce-add on GPUs: one kernel on device 0's stream reads a range of all n arenas, adds in the tree order of
 * nn/fold.h in registers, and writes device 0's. Where GPU 0 reaches a peer's memory it is read where it lies, as NCCL
 * and PyTorch's reduce do over NVLink; where it does not, the range is first copied into staging on device 0, by the
 * driver through the host, and read there. Either way the same bytes cross the same link and are charged to it. */
#include <string.h>

#include "device/cuda_kernels_launch.h"
#include "scatter_gather/reduce_executor.h"

enum { MOST_BUFFERS = 8, MOST_STEPS = 2 * MAX_DEVICES };

struct reduce_add {
    const float *source[MAX_DEVICES];
    float *to;
    uint64_t count;
    int32_t step_count;
    struct {
        unsigned char add, from, to; /* add: buffer `to` += buffer `from`; else `to` = source `from` */
    } step[MOST_STEPS];
};

static __global__ void __launch_bounds__(SIMPLE_THREADS) reduce_add(const __grid_constant__ struct reduce_add p) {
    struct place at = {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x};
    for (size_t i = place_first(at); i < p.count; i += place_stride(at)) {
        float sum[MOST_BUFFERS];
        for (int s = 0; s < p.step_count; s++) {
            float term = p.step[s].add ? sum[p.step[s].from] : p.source[p.step[s].from][i];
            sum[p.step[s].to] = p.step[s].add ? sum[p.step[s].to] + term : term;
        }
        p.to[i] = sum[0];
    }
}

/* Staging for those whose memory GPU 0 cannot read; and the kernel is loaded, before anything may spin. */
static int open_plan(struct reduce_plan *plan) {
    struct device_group *group = plan->group;
    struct cuda_device *first = (struct cuda_device *)group->device[0];
    struct cudaFuncAttributes attributes;
    CHECK(cuda_use(group->device[0]));
    CUDA_CHECK(cudaFuncGetAttributes(&attributes, DUET_KERNEL(reduce_add)), "loading kernels", first->head.name);
    for (int r = 1; r < group->count; r++) {
        if (cuda_reach(first, ((struct cuda_device *)group->device[r])->gpu)) continue;
        void *memory;
        CHECK(device_alloc(group->device[0], &memory, plan->most * sizeof(float), MEM_COMM));
        plan->staging[r] = (float *)memory;
    }
    return OK;
}

/* Where device 0 reads device r's part of the range. */
static int bring(const struct reduce_plan *plan, struct param_range range, int r, const float **source) {
    struct device_group *group = plan->group;
    size_t bytes = range.count * sizeof(float);
    *source = plan->arena[r] + range.first;
    if (r == 0) return OK;
    if (!plan->staging[r]) {
        traffic_add(device_traffic_mutable(group->device[0]), device_index(group->device[r]),
                    device_index(group->device[0]), bytes);
        return OK;
    }
    const float *there = *source;
    *source = plan->staging[r];
    return copy_peer(group->stream, group->device[0], plan->staging[r], group->device[r], there, bytes);
}

static int add(const struct reduce_plan *plan, struct param_range range) {
    struct cuda_stream *stream = (struct cuda_stream *)plan->group->stream;
    int n = plan->group->count;
    struct reduce_add p;
    memset(&p, 0, sizeof p);
    for (int r = 0; r < n; r++) CHECK(bring(plan, range, r, &p.source[r]));
    p.to = plan->arena[0] + range.first;
    p.count = range.count;
    p.step_count = plan->step_count;
    for (int s = 0; s < plan->step_count; s++) {
        const struct fold_step *step = &plan->steps[s];
        p.step[s].add = (unsigned char)step->add;
        p.step[s].from = (unsigned char)(step->add ? step->from : step->term);
        p.step[s].to = (unsigned char)step->to;
    }
    CHECK(cuda_begin(stream, "reduce add", (uint64_t)(n - 1) * range.count * sizeof(float), 0));
    enqueue(stream, DUET_KERNEL(reduce_add), grid_for(range.count, SIMPLE_THREADS), SIMPLE_THREADS, &p);
    CUDA_STREAM_CHECK(stream, cudaGetLastError(), "reduce add");
    return cuda_end(stream);
}

static const struct reduce_executor executor = {.open = open_plan, .add = add};
const struct reduce_executor *const cuda_reduce_executor = &executor;
