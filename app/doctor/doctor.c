/* The doctor's list of checks, their order, and the devices that each one tests. */
#include "doctor/doctor.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/error.h"
#include "doctor/guard.h"

static const struct {
    const char *name;
    doctor_check *check;
} checks[] = {{"peers", check_peers},
              {"operations", check_ops},
              {"allreduce", check_allreduce},
              {"training step", check_step}};
enum { CHECKS = sizeof checks / sizeof *checks };

enum { LEAST_DEVICES = 2 }; /* copies and ranks need two; they may share one GPU */
enum { MOST_GPUS = 8 };     /* memory and time grow with the pairs of GPUs */

struct doctor_config doctor_config_default(void) {
    struct doctor_config config = {.target = DOCTOR_AUTO, .timeout = 60};
    if (getrandom(&config.seed, sizeof config.seed, GRND_NONBLOCK) != sizeof config.seed)
        config.seed = (uint64_t)now_ns();
    config.seed &= INT64_MAX; /* so that every JSON reader keeps all digits */
    return config;
}

/* Passes each finding to the caller's function once, as soon as it exists. */
struct reporter {
    const struct findings *findings;
    int reported; /* how many findings were reported */
    void (*report)(void *context, const struct finding *finding);
    void *context;
};

static void report_new(void *context) {
    struct reporter *r = context;
    int count = __atomic_load_n(&r->findings->count, __ATOMIC_ACQUIRE);
    for (; r->reported < count; r->reported++)
        if (r->report) r->report(r->context, &r->findings->row[r->reported]);
}

static int devices_of(const struct doctor *d) {
    int gpus = d->progress->gpus;
    if (d->kind != DEVICE_CUDA || gpus < LEAST_DEVICES) return LEAST_DEVICES;
    return gpus < MOST_GPUS ? gpus : MOST_GPUS;
}

static int run_kind(struct doctor *d, enum device_kind kind, struct reporter *reporter) {
    d->kind = kind;
    d->devices = devices_of(d);
    for (int i = 0; i < CHECKS; i++)
        CHECK(guard_check(d, checks[i].name, checks[i].check, report_new, reporter));
    return OK;
}

static int verdict(const struct findings *findings) {
    int off = findings_count(findings, FINDING_OFF), first = 0;
    if (!off) return OK;
    while (findings->row[first].state != FINDING_OFF)
        first++;
    return fail(ERR_CHECK, "doctor: %d of %d checks failed: the first is %s: %s", off,
                findings->count, findings->row[first].check, findings->row[first].measured);
}

int doctor_run(const struct doctor_config *config, struct findings *findings,
               void (*report)(void *context, const struct finding *finding), void *context) {
    struct doctor d = {
        .config = *config, .findings = findings, .kind = DEVICE_HOST, .devices = LEAST_DEVICES};
    struct reporter reporter = {
        .findings = findings, .reported = findings->count, .report = report, .context = context};
    int code = OK;
    d.progress =
        mmap(NULL, sizeof *d.progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (d.progress == MAP_FAILED)
        return fail(ERR_MEMORY, "doctor: no memory to share with its checks: free some memory");
    CHECK_GOTO(guard_check(&d, "machine", check_machine, report_new, &reporter), code, done);
    if (config->target != DOCTOR_CUDA) CHECK_GOTO(run_kind(&d, DEVICE_HOST, &reporter), code, done);
    if (d.progress->gpus) CHECK_GOTO(run_kind(&d, DEVICE_CUDA, &reporter), code, done);
    code = verdict(findings);
done:
    munmap(d.progress, sizeof *d.progress);
    return code;
}
