/* The second half of cuda_stand_in.h, which includes it: streams, events, graphs, and kernels of
 * ops. */
#ifndef TESTS_STAND_INS_CUDA_STAND_IN_STREAM_H
#define TESTS_STAND_INS_CUDA_STAND_IN_STREAM_H

/* ---- streams and events ---- */
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned flags, int priority) {
    ENTER();
    (void)priority;
    if (flags != cudaStreamNonBlocking) return cudaErrorInvalidValue;
    *s = calloc(1, sizeof **s);
    return gpu.streams++, cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned flags) {
    return cudaStreamCreateWithPriority(s, flags, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    return free(s), gpu.streams--, gpu.fault;
}
cudaError_t cudaStreamQuery(cudaStream_t s) {
    ENTER_UNSAFE();
    return s->busy_until > gpu_now() ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned flags) {
    ENTER();
    *e = calloc(1, sizeof **e);
    (*e)->timed = !(flags & cudaEventDisableTiming);
    return gpu.events++, cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) {
    return cudaEventCreateWithFlags(e, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    return free(e), gpu.events--, gpu.fault;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    ENTER();
    /* would be an edge inside the graph, which Duet never records */
    if (s->captured) return s->broken = 1, cudaErrorStreamCaptureUnsupported;
    e->at = s->busy_until > gpu_now() ? s->busy_until : gpu_now();
    return e->recorded = 1, cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned flags) {
    struct node node = {.event = e};
    cudaError_t error;
    if (flags != cudaEventRecordExternal) return cudaEventRecord(e, s);
    ENTER();
    return is_captured(s, &node, &error) ? error : cudaErrorIllegalState;
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    ENTER_UNSAFE();
    return e->recorded && e->at > gpu_now() ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    ENTER();
    (void)flags;
    if (e->recorded && e->at > s->busy_until) s->busy_until = e->at;
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    ENTER();
    if (!from->recorded || !to->recorded || !from->timed || !to->timed)
        return cudaErrorInvalidResourceHandle;
    if (from->at > gpu_now() || to->at > gpu_now()) return cudaErrorNotReady;
    return *ms = (float)((double)(to->at - from->at) / 1e6), cudaSuccess;
}

/* In place of the .cu files: an op is the host's reference, in its place on the stream. */
cudaError_t cuda_write_launch(cudaStream_t s, void *to, const void *value, size_t bytes) {
    return cudaMemcpyAsync(to, value, bytes, cudaMemcpyHostToDevice, s);
}
cudaError_t cuda_write_load(void) {
    return enter();
}
int cuda_sum_load(const struct cuda_device *device) {
    CUDA_CHECK(enter(), "loading kernels", device->head.name);
    return OK;
}
/* One term, as a trial of P2P has it. */
int cuda_sum(struct cuda_stream *s, struct sum *sum, const char *what) {
    (void)what;
    memcpy(sum->dest[0], sum->source[0], sum->length * sizeof(float));
    return work(s->stream), OK;
}
int cuda_load_kernels(struct cuda_device *device) {
    CUDA_CHECK(enter(), "loading kernels", device->head.name);
    return OK;
}
int cuda_math_open(struct cuda_stream *s) {
    CUDA_CHECK(enter(), "math", s->head.device->name);
    if (!s->workspace) return fail(ERR_FAILED, "math without a workspace");
    s->math = (struct cuda_math *)&gpu;
    return gpu.math++, OK;
}
void cuda_math_close(struct cuda_stream *s) {
    if (s->math) gpu.math--;
    s->math = NULL;
}
int cuda_launch_op(struct cuda_stream *s, enum op op, const struct op_args *args) {
    struct node node = {.op = op, .args = *args};
    cudaError_t error = enter();
    CUDA_STREAM_CHECK(s, error, op_name(op));
    if (is_captured(s->stream, &node, &error)) {
        CUDA_STREAM_CHECK(s, error, op_name(op));
        return OK;
    }
    host_reference_kernels[op](args);
    work(s->stream);
    return OK;
}

/* Its kernels are launched by cuda_launch_op. */
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *kernel, void **params) {
    (void)how, (void)kernel, (void)params;
    return cudaErrorNotSupported;
}
cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **params,
                             size_t shared, cudaStream_t s) {
    (void)kernel, (void)grid, (void)block, (void)params, (void)shared, (void)s;
    return cudaErrorNotSupported;
}

/* ---- graphs ---- */
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
    ENTER();
    if (mode != cudaStreamCaptureModeThreadLocal || s->captured || gpu.capture)
        return cudaErrorIllegalState;
    s->captured = calloc(1, sizeof *s->captured);
    gpu.capture = s;
    return gpu.graphs++, cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *graph) {
    int broken = s->broken;
    if (!s->captured) return cudaErrorIllegalState;
    *graph = broken ? NULL : s->captured;
    if (broken) free(s->captured), gpu.graphs--;
    s->captured = NULL, s->broken = 0, gpu.capture = NULL;
    return broken ? cudaErrorStreamCaptureInvalidated : enter();
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags) {
    ENTER();
    (void)flags;
    *out = calloc(1, sizeof **out);
    (*out)->graph = *graph;
    return gpu.graphs++, cudaSuccess;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s) {
    ENTER();
    return (void)s, exec->uploaded++, cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
    ENTER();
    if (!exec->uploaded)
        return cudaErrorInvalidValue; /* CUDA allows it, but the first launch would be slow */
    for (int i = 0; i < exec->graph.count; i++) {
        struct node *n = &exec->graph.node[i];
        if (n->event)
            cudaEventRecord(n->event, s);
        else if (n->to)
            cudaMemcpyAsync(n->to, n->from, n->bytes, cudaMemcpyDefault, s);
        else
            host_reference_kernels[n->op](&n->args), work(s);
    }
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return free(graph), gpu.graphs--, gpu.fault;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return free(exec), gpu.graphs--, gpu.fault;
}

#endif
