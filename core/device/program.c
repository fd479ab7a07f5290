/* A program's devices, which are opened and closed together, and the threads that let them compute
 * at the same time. */
#include <stdio.h>
#include <string.h>

#include "base/files/atomic_file.h"
#include "base/program_name.h"
#include "base/text/json.h"
#include "base/worker.h"
#include "comm/environment.h"
#include "device/device.h"
#include "duet/parallel.h"

_Static_assert(DUET_MAX_RANK == (int)MAX_RANK, "duet.h repeats the limit");

static int kind_of(const char *name, enum device_kind *kind) {
    static const struct {
        const char *name;
        enum device_kind kind;
    } kinds[] = {{"cpu", DEVICE_HOST},
                 {"cpu-async", DEVICE_HOST},
                 {"cpu-late", DEVICE_HOST_LATE},
                 {"cuda", DEVICE_CUDA}};
    int count;
    if (name && !strcmp(name, "auto")) {
        *kind = device_probe(DEVICE_CUDA, &count) ? DEVICE_HOST : DEVICE_CUDA;
        return OK;
    }
    for (size_t i = 0; name && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(name, kinds[i].name)) continue;
        *kind = kinds[i].kind;
        return device_probe(*kind, &count);
    }
    return fail(ERR_USAGE, "kind of device: %s: expected auto, cpu, cpu-async, cpu-late or cuda",
                name ? name : "none given");
}

int duet_device_count(const char *kind) {
    enum device_kind of;
    int count;
    if (kind && !strcmp(kind, "cuda")) return device_probe(DEVICE_CUDA, &count) ? 0 : count;
    if (kind_of(kind, &of)) return 0;
    return device_probe(of, &count) ? 0 : count;
}

/* Opens the devices first .. first+n-1 of a job; without a given size, the memory is for `sharing`
 * devices. */
static int open_devices(duet_device **devices, int first, int n, int sharing, const char *kind,
                        uint64_t memory_bytes) {
    struct device_config config = {.memory_bytes = memory_bytes, .devices = sharing};
    CHECK(kind_of(kind, &config.kind));
    config.check_operands = config.kind == DEVICE_HOST_LATE;
    config.async = !strcmp(kind, "cpu-async");
    /* A GPU has its own default. */
    if (!memory_bytes && config.kind != DEVICE_CUDA)
        config.memory_bytes = device_default_memory(sharing);
    for (int i = 0; i < n; i++) {
        struct device *device;
        config.index = first + i;
        int code = device_open(&device, &config);
        if (code) {
            duet_devices_close(devices, i);
            return code;
        }
        devices[i] = (duet_device *)device;
    }
    return OK;
}

int duet_devices_open(duet_device **devices, int n, const char *kind, uint64_t memory_bytes) {
    if (n < 1 || n > MAX_DEVICES)
        return fail(ERR_USAGE, "devices: %d: give 1 to %d", n, MAX_DEVICES);
    if (!devices) return fail(ERR_USAGE, "devices: the output pointer is NULL");
    memset(devices, 0, (size_t)n * sizeof *devices);
    CHECK(check_alone());
    return open_devices(devices, 0, n, n, kind, memory_bytes);
}

int duet_device_open(duet_device **out, const char *kind, int index, uint64_t memory_bytes) {
    CHECK_OUT(out);
    if (index < 0 || index >= MAX_DEVICES)
        return fail(ERR_USAGE, "device %d: give 0 to %d", index, MAX_DEVICES - 1);
    return open_devices(out, index, 1, 1, kind, memory_bytes);
}

/* Objects freed after their device would touch memory that is gone. */
static void warn_of_what_is_alive(const struct device *device) {
    struct ledger ledger = device_ledger(device);
    char held[256];
    ledger.now[MEM_WORKSPACE] = 0; /* belongs to the device's own kernels */
    for (int cause = 0; cause < MEM_CAUSE_COUNT; cause++) {
        if (!ledger.now[cause]) continue;
        ledger_describe(&ledger, held, sizeof held);
        fprintf(stderr,
                "%s: warning: %s is closed while it holds %s: free tensors, parameters and tapes "
                "first; now they must be neither used nor freed\n",
                program_name(), device_name(device), held);
        return;
    }
}

void duet_devices_close(duet_device **devices, int n) {
    for (int i = 0; devices && i < n && n <= MAX_DEVICES; i++) {
        if (devices[i]) warn_of_what_is_alive(device_of(devices[i]));
        device_close(device_of(devices[i]));
        devices[i] = NULL;
    }
}

const char *duet_device_name(const duet_device *device) {
    return device ? device_name(device_of(device)) : "none";
}

int duet_device_sync(duet_device *device) {
    if (!device) return fail(ERR_USAGE, "device sync: no device was given");
    return stream_sync(device_compute(device_of(device)));
}

int duet_device_memory(const duet_device *device, uint64_t *now, uint64_t *peak) {
    if (!device) return fail(ERR_USAGE, "device memory: no device was given");
    struct ledger ledger = device_ledger(device_of(device));
    if (now) *now = ledger.total;
    if (peak) *peak = ledger.total_peak;
    return OK;
}

/* ---- when it computed ---- */

int duet_device_profile(duet_device *device, int on) {
    if (!device) return fail(ERR_USAGE, "device profile: no device was given");
    struct stream *stream = device_compute(device_of(device));
    if (device_config(device_of(device))->kind == DEVICE_CUDA)
        return fail(ERR_USAGE,
                    "device profile: %s: for GPUs only the command records a timeline: "
                    "duet train --trace FILE",
                    duet_device_name(device));
    CHECK(stream_sync(stream));
    span_log_free(stream_spans(stream));
    span_log_init(stream_spans(stream), on);
    return OK;
}

static void write_spans(struct json_writer *w, int d, const struct span_log *log) {
    for (size_t i = 0; i < log->count; i++) {
        const struct span *s = &log->spans[i];
        json_slice(w, d, 0, s->name, NULL, s->start_ns, s->end_ns);
        json_boolean(w, "waiting", s->waiting);
        json_close(w);
        json_close(w);
    }
}

int duet_devices_timeline(duet_device *const *devices, int n, const char *path) {
    struct atomic_file file = {0};
    struct json_writer w;
    if (!devices || n < 1 || n > MAX_DEVICES || !path)
        return fail(ERR_USAGE, "timeline: %d devices: give 1 to %d, and a file", n, MAX_DEVICES);
    for (int d = 0; d < n; d++)
        CHECK(duet_device_sync(devices[d]));
    CHECK(atomic_open(&file, path));
    json_start(&w, file.file);
    json_object(&w, NULL);
    json_object(&w, "otherData");
    json_integer(&w, "duet_timeline", 1);
    json_integer(&w, "devices", n);
    json_close(&w);
    json_array(&w, "traceEvents");
    for (int d = 0; d < n; d++)
        write_spans(&w, d, stream_spans(device_compute(device_of(devices[d]))));
    json_close(&w);
    json_close(&w);
    int code = json_finish(&w, path);
    if (!code) code = atomic_commit(&file);
    atomic_abandon(&file);
    return code;
}

/* ---- one thread per device ---- */

struct share {
    int (*work)(void *context, int i);
    void *context;
    int i;
    struct task task;
};

static int run_share(void *argument) {
    const struct share *share = argument;
    return share->work(share->context, share->i);
}

int duet_parallel(int n, int (*work)(void *context, int i), void *context) {
    struct share shares[MAX_DEVICES];
    struct worker *worker;
    if (n < 1 || n > MAX_DEVICES)
        return fail(ERR_USAGE, "parallel: %d threads: give 1 to %d", n, MAX_DEVICES);
    if (!work) return fail(ERR_USAGE, "parallel: no function was given");
    CHECK(worker_new(&worker, n));
    int code = worker_start(worker, n - 1, "parallel: a thread could not be started");
    for (int i = 0; i < n && !code; i++) {
        shares[i] = (struct share){work, context, i, {.run = run_share, .context = &shares[i]}};
        if (i) worker_give(worker, &shares[i].task);
    }
    if (!code) task_run(&shares[0].task);
    worker_free(worker, WORKER_NEVER);
    for (int i = 0; i < n && !code; i++)
        code = task_end(&shares[i].task);
    return code;
}
