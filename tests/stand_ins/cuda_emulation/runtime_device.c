/* The emulated machine: the number of GPUs, their properties, and the requested failures. All
 * environment variables are read here, once. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

#include <stdio.h>

struct emulated emulated;
__thread struct emulated_thread emulated_self;

static const char *const fault_kinds[] = {"launch", "hang",   "malloc", "host",
                                          "ipc",    "export", "call"};
enum { FAULT_KINDS = 7 };
static atomic_long fault_counts[FAULT_KINDS];

/* ---- the environment ---- */

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 10) : otherwise;
}

static size_t size(const char *name, size_t otherwise) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return otherwise;
    size_t value = strtoull(text, &end, 10);
    return *end == 'G'   ? value << 30
           : *end == 'M' ? value << 20
           : *end == 'K' ? value << 10
                         : value;
}

/* EMULATED_MIG: of its instances a process gets one, the first that CUDA_VISIBLE_DEVICES names by
 * its UUID. Returns 0 where there is none of this name. */
static int choose_instance(int instances) {
    static const char uuid[] = "MIG-emulated-";
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    if (!text) return 1; /* the first of all */
    if (strncmp(text, uuid, sizeof uuid - 1)) return 0;
    int instance = atoi(text + sizeof uuid - 1);
    emulated.gpus[0].number = instance;
    return instance < instances;
}

/* CUDA_VISIBLE_DEVICES: GPUs by number, up to the first that is not there. */
static int choose(int here) {
    const char *text = getenv("CUDA_VISIBLE_DEVICES");
    int count = 0, instances = (int)number("EMULATED_MIG", 0);
    if (instances) return choose_instance(instances);
    if (!text) {
        for (; count < here; count++)
            emulated.gpus[count].number = count;
        return count;
    }
    while (count < GPU_LIMIT) {
        char *end;
        long gpu = strtol(text, &end, 10);
        if (end == text || gpu < 0 || gpu >= here) break;
        emulated.gpus[count++].number = (int)gpu;
        if (*end != ',') break;
        text = end + 1;
    }
    return count;
}

static void in_child(void) {
    emulated.forked = 1;
}

static void read_environment(void) {
    long gpus = number("EMULATED_GPUS", 1);
    emulated.count = choose(gpus < 0 ? 0 : gpus > GPU_LIMIT ? GPU_LIMIT : (int)gpus);
    emulated.memory = size("EMULATED_GPU_MEMORY", (size_t)80 << 30);
    const char *peer = getenv("EMULATED_PEER");
    emulated.peer = peer && !strcmp(peer, "pairs")                               ? PEER_PAIRS
                    : peer && !strcmp(peer, "chain")                             ? PEER_CHAIN
                    : number("EMULATED_PEER", number("EMULATED_MIG", 0) ? 0 : 1) ? PEER_ALL
                                                                                 : PEER_NONE;
    static const char *const p2p[] = {"lost", "stores", "wrong", "hang"};
    const char *how = getenv("EMULATED_P2P");
    for (int i = 0; how && i < 4; i++)
        if (!strcmp(how, p2p[i])) emulated.p2p = P2P_LOST + i;
    emulated.multiprocessors = (int)number("EMULATED_MULTIPROCESSORS", 132);
    emulated.capability = (int)number("EMULATED_CAPABILITY", 90);
    const char *mode = getenv("EMULATED_COMPUTE_MODE");
    emulated.exclusive = mode && !strcmp(mode, "exclusive");
    emulated.blocking = number("CUDA_LAUNCH_BLOCKING", 0) != 0;
    emulated.queues = (int)number("CUDA_DEVICE_MAX_CONNECTIONS", 0);
    if (emulated.queues < 0 || emulated.queues >= 8) emulated.queues = 0;
    emulated.guard = number("EMULATED_CUDA_GUARD", 0) != 0;
    emulated.trace = number("EMULATED_CUDA_TRACE", 0) != 0;
    emulated.late_us = number("EMULATED_CUDA_LATE_US", 0);
    emulated.queue = number("EMULATED_CUDA_QUEUE", 1024);
    if (getenv("EMULATED_MACHINE"))
        snprintf(emulated.machine, sizeof emulated.machine, "%s", getenv("EMULATED_MACHINE"));
    pthread_atfork(NULL, NULL, in_child);
}

/* Calls visit(word, data) with each entry of EMULATED_CUDA_FAULT that is meant for this process,
 * its @RANK cut off. */
static int any_fault(int (*visit)(const char *word, const void *data), const void *data) {
    const char *all = getenv("EMULATED_CUDA_FAULT"), *rank = getenv("RANK");
    char list[256], *rest = list, *word;
    if (!all) return 0;
    snprintf(list, sizeof list, "%s", all);
    while ((word = strsep(&rest, ","))) {
        char *at = strchr(word, '@');
        if (at) *at++ = 0;
        if ((!at || (rank && !strcmp(at, rank))) && visit(word, data)) return 1;
    }
    return 0;
}

static int is_word(const char *word, const void *data) {
    return !strcmp(word, data);
}

int fault_set(const char *word) {
    return any_fault(is_word, word);
}

int fault_now(const char *what) {
    char word[64];
    if (!getenv("EMULATED_CUDA_FAULT")) return 0;
    for (int i = 0; i < FAULT_KINDS; i++)
        if (!strcmp(what, fault_kinds[i])) {
            snprintf(word, sizeof word, "%s:%ld", what, atomic_fetch_add(&fault_counts[i], 1) + 1);
            return fault_set(word) || fault_set(what);
        }
    return 0;
}

/* ---- entering ---- */

cudaError_t enter_driver(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, read_environment);
    if (emulated_self.on_stream) return cudaErrorNotPermitted; /* a host function of a stream */
    if (emulated.forked) return cudaErrorInitializationError;
    if (fault_set("driver:none") || fault_set("driver:old")) return cudaErrorInsufficientDriver;
    if (fault_set("driver:fabric")) return cudaErrorSystemNotReady;
    return emulated.count ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t enter_uncounted(void) {
    cudaError_t error = enter_driver();
    if (error == cudaSuccess) error = context_open(current_gpu());
    return error != cudaSuccess ? error : (cudaError_t)current_gpu()->fault;
}

cudaError_t enter_gpu(void) {
    cudaError_t error = enter_uncounted();
    return error == cudaSuccess && fault_now("call") ? cudaErrorUnknown : error;
}

struct gpu *current_gpu(void) {
    return &emulated.gpus[emulated_self.gpu];
}

/* ---- the API ---- */

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 0;
    ENTER(enter_driver());
    *count = emulated.count;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = fault_set("driver:none") ? 0 : fault_set("driver:old") ? 11040 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

static cudaError_t check_device(int device) {
    cudaError_t error = enter_driver();
    if (error != cudaSuccess) return error;
    return device < 0 || device >= emulated.count ? cudaErrorInvalidDevice : cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    ENTER(check_device(device));
    emulated_self.gpu = device;
    ENTER(context_open(current_gpu())); /* from CUDA 12 on it makes the context */
    return give(current_gpu()->fault);
}

cudaError_t cudaGetDevice(int *device) {
    ENTER(enter_driver());
    *device = emulated_self.gpu;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    ENTER(check_device(device));
    const struct gpu *gpu = &emulated.gpus[device];
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "emulated GPU (no hardware)");
    memcpy(p->uuid.bytes, "emulated-gpu-", 13);
    p->uuid.bytes[15] = (char)gpu->number;
    p->major = emulated.capability / 10, p->minor = emulated.capability % 10;
    p->multiProcessorCount = emulated.multiprocessors;
    p->totalGlobalMem = emulated.memory;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    ENTER(check_device(device));
    if (attribute != cudaDevAttrComputeMode) return give(cudaErrorInvalidValue);
    *value = emulated.exclusive ? cudaComputeModeExclusiveProcess : cudaComputeModeDefault;
    return cudaSuccess;
}

int emulated_reaches(int a, int b) {
    switch (emulated.peer) {
    case PEER_NONE: return 0;
    case PEER_ALL: return a != b;
    case PEER_PAIRS: return a != b && a / 2 == b / 2;
    case PEER_CHAIN: return a - b == 1 || b - a == 1;
    }
    return 0;
}

static int reaches(int device, int peer) {
    return emulated_reaches(emulated.gpus[device].number, emulated.gpus[peer].number);
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    ENTER(check_device(device));
    ENTER(check_device(peer));
    *can = reaches(device, peer);
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    ENTER(check_device(peer));
    ENTER(enter_gpu());
    struct gpu *gpu = current_gpu();
    if (flags) return give(cudaErrorInvalidValue);
    if (peer == emulated_self.gpu) return give(cudaErrorInvalidDevice);
    if (!reaches(emulated_self.gpu, peer)) return give(cudaErrorPeerAccessUnsupported);
    if (atomic_fetch_or(&gpu->peers, 1u << peer) >> peer & 1)
        return give(cudaErrorPeerAccessAlreadyEnabled);
    return cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    ENTER(check_device(peer));
    ENTER(enter_gpu());
    if (!(atomic_fetch_and(&current_gpu()->peers, ~(1u << peer)) >> peer & 1))
        return give(cudaErrorPeerAccessNotEnabled);
    return cudaSuccess;
}
