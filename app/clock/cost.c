/* The cost model in the order of a step: kernels, the host, copies, sums. docs/clock.md has the
 * sources of the numbers. Nothing here depends on the name of a GPU or machine; only the numbers in
 * the table matter. */
#include "clock/cost.h"

#include <math.h>
#include <string.h>

/* ---- 1. kernels ----
 *
 *     t = max(F / (P e), B / (W m)) + c0 / P (convolutions) + t_k
 *
 * F flops and P the GPU's rate; B bytes, each operand once, and W its bandwidth. e may exceed 1:
 * Winograd's convolutions multiply less than F says. c0: a convolution too small to fill the GPU
 * costs this many extra flops. */
static const double REACHED_CONV = 1.26, REACHED_CONV_1X1 = 0.95, REACHED_PRODUCT = 0.69;
/* Efficiency of tensor cores: for TF32 in convolutions and in products; for float16 with float32
 * sums. A GeForce adds in float32 at half its rate, and its products reach all of that half. */
static const double REACHED_TF32_CONV = 0.30, REACHED_TF32_PRODUCT = 0.56, REACHED_HALF = 0.6,
                    REACHED_HALF_RATE = 1;
static const double NORM_OVER_POINTWISE = 0.83 / 0.76;
static const double SMALL_CONV_FLOPS = 1.23e9, SMALL_CONV_MOST = 2;
/* The fewer channels an output of a grouped convolution sees, the less of fp32's rate it reaches,
 * and in TF32 (cuDNN 8.0) each group adds some time, however small it is. Depthwise ones in float32
 * run PyTorch's own kernel, which does not use TF32. */
static const double REACHED_BY_GROUP_CHANNEL = 0.0107, REACHED_BY_GROUP_CHANNEL_HALF = 0.04,
                    REACHED_DEPTHWISE = 0.032;
static const double KERNEL_US = 4, TF32_GROUP_US = 10;

struct what_if what_if_none(void) {
    return (struct what_if){{1, 1, 1, 1, 1}};
}

/* 1: under autocast the kernel reads and writes halves. */
static int is_half(const struct clock_config *c, const struct scheduled *k) {
    return c->precision == CLOCK_AMP && !k->work.stays_float32 &&
           (k->facts.phase == PHASE_FORWARD || k->facts.phase == PHASE_BACKWARD);
}

/* 1: its tensor cores are no faster in TF32 than its other cores in float32. */
static int is_half_rate(const struct gpu_spec *g) {
    return g->tensor > 0 && g->tensor < 1.5 * g->fp32;
}

/* TFLOP/s of the tensor cores. PyTorch's default: convolutions take TF32, products do not. */
static double tensor_of(const struct clock_config *c, const struct work *w) {
    const struct gpu_spec *g = c->gpu;
    int product = w->of == WORK_PRODUCT;
    double all = product && is_half_rate(g) ? REACHED_HALF_RATE : 0;
    if (c->precision == CLOCK_AMP) return g->half * (all > 0 ? all : REACHED_HALF);
    if (c->precision == CLOCK_FP32 || (product && c->precision == CLOCK_AS_PYTORCH)) return 0;
    return g->tensor * (all > 0 ? all : product ? REACHED_TF32_PRODUCT : REACHED_TF32_CONV);
}

/* Flops per nanosecond. */
static double rate_of(const struct clock_config *c, const struct work *w) {
    const struct gpu_spec *g = c->gpu;
    double reached = w->of == WORK_CONV      ? REACHED_CONV
                     : w->of == WORK_PRODUCT ? REACHED_PRODUCT
                                             : REACHED_CONV_1X1;
    double plain = g->fp32 * reached;
    double tensor = tensor_of(c, w);
    double dense = fmax(plain, tensor);
    double grouped = (c->precision == CLOCK_AMP ? REACHED_BY_GROUP_CHANNEL_HALF
                      : w->group_width == 1     ? REACHED_DEPTHWISE
                                                : REACHED_BY_GROUP_CHANNEL) *
                     g->fp32 * w->group_width;
    return (w->group_width && grouped < dense ? grouped : dense) * 1e3 * c->what_if.by[IF_COMPUTE];
}

static double memory_of(const struct clock_config *c, enum work_class of) {
    double reached = c->gpu->reached * (of == WORK_NORM ? NORM_OVER_POINTWISE : 1);
    return c->gpu->gbs * reached * c->what_if.by[IF_MEMORY];
}

struct parts {
    double flops_ns, memory_ns, small_ns, launch_ns, groups_ns;
};

/* Autocast copies each weight to half precision, and its gradient to float32, in separate kernels:
 * four bytes on one side and two on the other. */
static struct parts parts_of(const struct clock_config *c, const struct scheduled *k) {
    const struct work *w = &k->work;
    struct parts p = {.launch_ns = KERNEL_US * 1e3};
    int conv = w->of == WORK_CONV || w->of == WORK_CONV_1X1 || w->of == WORK_CONV_GROUPED;
    if (conv || w->of == WORK_PRODUCT) p.flops_ns = w->flops / rate_of(c, w);
    int tf32 = c->precision != CLOCK_AMP && tensor_of(c, w) > c->gpu->fp32 * REACHED_CONV_1X1;
    if (tf32 && w->group_width > 1) p.groups_ns = TF32_GROUP_US * 1e3 * w->groups;
    double bytes = w->bytes + w->eager_bytes;
    if (is_half(c, k)) bytes /= 2;
    p.memory_ns = bytes / memory_of(c, w->of);
    if (is_half(c, k) && w->weight_bytes)
        p.launch_ns += KERNEL_US * 1e3 + 1.5 * w->weight_bytes / memory_of(c, WORK_POINTWISE);
    if (conv)
        p.small_ns = fmin(SMALL_CONV_FLOPS / (c->gpu->fp32 * 1e3 * c->what_if.by[IF_COMPUTE]),
                          SMALL_CONV_MOST * fmax(p.flops_ns, p.memory_ns));
    return p;
}

int cost_leaves_out(const struct clock_config *c, const struct scheduled *e) {
    return c->last_phase != PHASE_NONE && e->facts.phase > c->last_phase &&
           e->facts.phase <= PHASE_OPTIMIZER;
}

int64_t cost_kernel_ns(const struct clock_config *c, const struct scheduled *k) {
    if (k->work.of == WORK_FREE || cost_leaves_out(c, k)) return 0;
    if (!k->work.eager && !k->work.bytes) return 0;
    struct parts p = parts_of(c, k);
    /* If an eager program runs one kernel where Duet runs several, only one launch is charged. The
     * two gradients of a product are two kernels. */
    int product = k->work.of != WORK_POINTWISE && k->work.of != WORK_NORM;
    double launch = !k->work.eager && !product ? 0 : p.launch_ns;
    double ns = fmax(p.flops_ns, p.memory_ns) + p.small_ns;
    return (int64_t)ceil(ns * c->machine->scale * (c->given ? c->given : 1) +
                         (launch + p.groups_ns));
}

const char *cost_bound(const struct clock_config *c, const struct scheduled *k) {
    struct parts p = parts_of(c, k);
    double flops_ns = p.flops_ns + p.groups_ns;
    if (p.launch_ns + p.small_ns > fmax(flops_ns, p.memory_ns)) return "launches";
    return flops_ns > p.memory_ns ? "flops" : "memory";
}

/* ---- 2. the host ----
 *
 * An operation of the interpreter has one price in forward and another in backward, which runs in
 * C++ threads; replicate makes a tensor for each parameter and device; DDP's hook copies each
 * gradient. */
static const double ADDITION = 0.1; /* of an operation: two gradients are added; in no formula */
static const double START_US = 5;   /* from the call to the GPU's first instruction */

/* The share of all parameters that an entry moves, in tensors. */
static double tensors_of(const struct clock_config *c, const struct scheduled *e) {
    return c->parameter_bytes ? c->tensors * (double)e->bytes / (double)c->parameter_bytes : 0;
}

static double eager_us(const struct clock_config *c, const struct scheduled *e) {
    const struct machine *m = c->machine;
    int casts = c->precision == CLOCK_AMP ? e->work.casts : 0;
    double copies = c->devices > 1 ? (double)c->devices / (c->devices - 1) : 1;
    switch (e->kind) {
    case SCHEDULED_KERNEL:
        return (e->work.eager + ADDITION * e->work.additions + casts) *
               (e->facts.phase == PHASE_BACKWARD ? m->backward_us : m->forward_us);
    case SCHEDULED_COPY:
        if (e->facts.phase == PHASE_REPLICATE && e->from != e->to) /* device 0 also gets a copy */
            return m->replicate_us * tensors_of(c, e) * copies;
        return e->facts.phase == PHASE_NONE ? 0 : m->forward_us;
    case SCHEDULED_GROUP:
        return e->collective == SCHEDULED_ALONE || e->collective == SCHEDULED_BROADCAST
                   ? 0
                   : m->hook_us * tensors_of(c, e);
    default: return 0;
    }
}

int64_t cost_issue_ns(const struct clock_config *c, const struct scheduled *e) {
    int calls =
        e->kind == SCHEDULED_KERNEL || e->kind == SCHEDULED_COPY || e->kind == SCHEDULED_GROUP;
    if (!calls || e->work.of == WORK_FREE) return 0;
    if (cost_leaves_out(c, e)) return 0;
    return (int64_t)ceil(eager_us(c, e) * 1e3 * c->what_if.by[IF_LAUNCH]);
}

int64_t cost_start_ns(const struct clock_config *c, const struct scheduled *e) {
    int starts = e->kind == SCHEDULED_KERNEL || e->kind == SCHEDULED_COPY;
    return starts && e->work.of != WORK_FREE ? (int64_t)(START_US * 1e3 * c->what_if.by[IF_LAUNCH])
                                             : 0;
}

int cost_holds_lock(const struct clock_config *c, const struct scheduled *e) {
    return c->what_if.by[IF_GIL] > 0 && e->facts.phase == PHASE_FORWARD;
}

/* ---- 3. copies ----
 *
 * PyTorch broadcasts parameters and reduces gradients by NCCL, whose ring takes each byte over
 * each link once. The schedule is Duet's, whose device 0 sends, or reads, n - 1 times as much over
 * its own. */
double cost_moved_bytes(const struct clock_config *c, const struct scheduled *e) {
    int ring =
        (e->facts.phase == PHASE_REPLICATE || e->facts.phase == PHASE_REDUCE) && e->from != e->to;
    double bytes = cost_leaves_out(c, e) ? 0 : (double)e->bytes;
    return ring && c->devices > 1 ? bytes / (c->devices - 1) : bytes;
}

/* ---- 4. sums ----
 *
 * NCCL takes the fastest of its algorithms and protocols for each size. m nodes of g GPUs, n in
 * all, hop within a node and net between two; b what the links, or the network cards, let through:
 *
 *     ring    t = base + 2 (n - m) hop + 2 (m - 1) net   + 2 (n - 1) / n S / (b part)
 *     tree    t = base + 2 (g - 1) hop + 2 log2(m) net   + 2 S / (b part)
 *
 * An all-gather, a reduce-scatter and a broadcast go around a ring once, the last with all of S.
 *
 * Simple copies and then raises a flag. LL sends a flag with every four bytes, so half of what it
 * moves is flags and nobody waits; LL128 sends eight bytes of flags with every 120, which needs
 * stores of 128 bytes that stay whole, as over NVLink. */
enum { PROTOCOLS = 3 }; /* LL, LL128, Simple */
struct nccl_row {
    double base_us, part;      /* part: fraction of the bandwidth */
    double hop_part, net_part; /* fractions of a hop's latency in ring Simple */
};
static const struct nccl_row nccl_ring[PROTOCOLS] = {
    {6.6, 0.5, 0.18, 0.19}, {14, 0.92, 0.50, 0.29}, {8.4, 1, 1, 1}};
static const struct nccl_row nccl_tree[PROTOCOLS] = {
    {6.8, 1 / 3.8, 0.18, 0.36}, {14, 7.0 / 9, 0.35, 0.61}, {8.4, 0.92, 0.94, 1}};
static const double LONGEST_LL128_HOP_US = 4; /* hops over NVLink are shorter, over PCIe longer */

static double ring_gbs(const struct clock_config *c, int ranks, double *hop_us) {
    const struct machine *m = c->machine;
    double gbs = net_ring_gbs(&m->net, ranks, hop_us);
    return (m->sum_gbs ? m->sum_gbs : gbs * m->links) * c->what_if.by[IF_LINK];
}

/* DDP copies gradients into its buckets and back; FSDP gradients into the blocks of a
 * reduce-scatter, and parameters out of those of an all-gather. */
static double bucket_copies_ns(const struct clock_config *c, uint64_t bytes,
                               enum scheduled_collective what) {
    double times = what == SCHEDULED_SUM ? 4 : what == SCHEDULED_BROADCAST ? 0 : 2;
    return times * (double)bytes / memory_of(c, WORK_POINTWISE);
}

int64_t cost_sum(const struct clock_config *c, int ranks, uint64_t bytes,
                 enum scheduled_collective what) {
    const struct machine *m = c->machine;
    double nodes = c->nodes > 1 ? c->nodes : 1, hop = 0, net = nodes > 1 ? m->network.us : 0;
    double n = nodes * ranks, gbs = ranks > 1 ? ring_gbs(c, ranks, &hop) : INFINITY;
    double cards = (m->cards < ranks ? m->cards : ranks) * m->network.gbs * c->what_if.by[IF_LINK];
    if (nodes > 1 && cards < gbs) gbs = cards;
    double best = INFINITY;
    int turns = what == SCHEDULED_SUM ? 2 : 1;
    for (int i = 0; i < turns * PROTOCOLS; i++) {
        int tree = i >= PROTOCOLS, whole = tree || what == SCHEDULED_BROADCAST;
        const struct nccl_row *row = tree ? &nccl_tree[i - PROTOCOLS] : &nccl_ring[i];
        if (i % PROTOCOLS == 1 && hop > LONGEST_LL128_HOP_US) continue;
        double us = row->base_us + turns * (tree ? ranks - 1 : n - nodes) * hop * row->hop_part +
                    turns * (tree ? ceil(log2(nodes)) : nodes - 1) * net * row->net_part;
        double moved = turns * (whole ? 1 : (n - 1) / n) * (double)bytes;
        double ns = us * 1e3 + moved / (gbs * row->part);
        best = fmin(best, ns + bucket_copies_ns(c, bytes, what));
    }
    return (int64_t)ceil(best);
}
