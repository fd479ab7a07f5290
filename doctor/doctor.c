/* The doctor: which checks there are, in which order, for which devices. */
#include "doctor/doctor.h"

#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "doctor/guard.h"

static const struct {
    const char *name;
    doctor_check *check;
} checks[] = {{"memory", check_memory},
              {"streams", check_streams},
              {"peers", check_peers},
              {"memory of another process", check_ipc},
              {"operations", check_ops},
              {"allreduce", check_allreduce},
              {"grid", check_grid},
              {"training step", check_step},
              {"replayed steps", check_replay}};
enum { CHECKS = sizeof checks / sizeof *checks };

struct doctor_config doctor_config_default(void) {
    struct doctor_config config = {.target = DOCTOR_AUTO, .timeout = 60};
    if (getrandom(&config.seed, sizeof config.seed, GRND_NONBLOCK) != sizeof config.seed)
        config.seed = (uint64_t)now_ns();
    config.seed &= INT64_MAX; /* so that --seed can repeat it */
    return config;
}

/* ---- what the checks share ---- */

const char *doctor_kind_name(const struct doctor *d) {
    return d->kind == DEVICE_CUDA ? "cuda" : "cpu";
}

void doctor_step(struct doctor *d, int step, const char *format, ...) {
    va_list words;
    va_start(words, format);
    vsnprintf(d->progress->name, sizeof d->progress->name, format, words);
    va_end(words);
    __atomic_store_n(&d->progress->step, step, __ATOMIC_RELEASE);
}

void note(struct doctor *d, enum finding_state state, const char *what, const char *bound,
          const char *format, ...) {
    char measured[sizeof d->findings->row->measured];
    va_list words;
    va_start(words, format);
    vsnprintf(measured, sizeof measured, format, words);
    va_end(words);
    finding_add(d->findings, state, what, measured, bound);
}

size_t doctor_block(const struct doctor *d) {
    size_t quick = (size_t)4 << 20,
           whole = d->kind == DEVICE_CUDA ? (size_t)256 << 20 : (size_t)32 << 20;
    return (d->config.quick ? quick : whole) + 5;
}

static int job_failed(void *comm) {
    return comm_check(comm);
}

int doctor_open(const struct doctor *d, int index, uint64_t bytes, int checked,
                struct device **out) {
    static const uint64_t SPARE = (uint64_t)96 << 20; /* 64 MiB of it are a GPU's workspace */
    struct device_config config = {.kind = d->kind,
                                   .index = index,
                                   .devices = d->devices,
                                   .memory_bytes = bytes + SPARE,
                                   .check_operands = checked,
                                   .allow_tf32 = d->config.tf32,
                                   .math = d->math,
                                   .timeout_s = d->config.timeout / 2,
                                   .interrupted = d->comm ? job_failed : NULL,
                                   .interrupt_context = d->comm};
    return d->config.open_device ? d->config.open_device(out, &config) : device_open(out, &config);
}

/* ---- the whole ---- */

struct teller {
    const struct findings *findings;
    int told;
    void (*report)(void *context, const struct finding *finding);
    void *context;
};

static void tell_new(void *context) {
    struct teller *t = context;
    int count = __atomic_load_n(&t->findings->count, __ATOMIC_ACQUIRE);
    for (; t->told < count; t->told++)
        if (t->report) t->report(t->context, &t->findings->row[t->told]);
}

static int run_kind(struct doctor *d, enum device_kind kind, struct teller *teller) {
    enum { MOST = 8 }; /* GPUs of a large machine; memory and time grow with the pairs */
    d->kind = kind;
    d->devices = d->progress->gpus < 2 || kind != DEVICE_CUDA ? 2
                 : d->progress->gpus < MOST                   ? d->progress->gpus
                                                              : MOST;
    for (int i = 0; i < CHECKS; i++)
        CHECK(guard_check(d, checks[i].name, checks[i].check, tell_new, teller));
    return OK;
}

static int verdict(const struct findings *findings) {
    int off = findings_count(findings, FINDING_OFF), i = 0;
    if (!off) return OK;
    while (findings->row[i].state != FINDING_OFF)
        i++;
    return fail(ERR_CHECK, "doctor: %d of %d findings are off: first: %s: %s", off, findings->count,
                findings->row[i].check, findings->row[i].measured);
}

int doctor_run(const struct doctor_config *config, struct findings *findings,
               void (*report)(void *context, const struct finding *finding), void *context) {
    struct doctor d = {.config = *config, .findings = findings, .kind = DEVICE_HOST, .devices = 2};
    struct teller teller = {
        .findings = findings, .told = findings->count, .report = report, .context = context};
    int code = OK;
    d.progress =
        mmap(NULL, sizeof *d.progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (d.progress == MAP_FAILED)
        return fail(ERR_MEMORY, "doctor: no memory to share with its checks: free some");
    CHECK_GOTO(guard_check(&d, "machine", check_machine, tell_new, &teller), code, done);
    if (config->target != DOCTOR_CUDA) CHECK_GOTO(run_kind(&d, DEVICE_HOST, &teller), code, done);
    if (d.progress->gpus) CHECK_GOTO(run_kind(&d, DEVICE_CUDA, &teller), code, done);
    code = verdict(findings);
done:
    munmap(d.progress, sizeof *d.progress);
    return code;
}
