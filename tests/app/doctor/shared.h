/* Shared by the doctor's tests: faulty devices, and single checks that run on them.
 *
 * A faulty device is a real one whose table of functions (device/table.h) is a copy with some
 * entries replaced. The doctor opens it through doctor_config.open_device. */
#ifndef TESTS_DOCTOR_SHARED_H
#define TESTS_DOCTOR_SHARED_H

#include <sys/mman.h>

#include "base/error.h"
#include "device/table.h"
#include "doctor/guard.h"
#include "tests/harness/harness.h"

static struct device_ops faulty;              /* the table of devices opened by open_faulty */
static const struct device_ops *correct;      /* the table that it was copied from */
static void (*plant)(struct device_ops *ops); /* replaces entries of it; NULL: none */

static inline int open_faulty(struct device **out, const struct device_config *config) {
    CHECK(device_open(out, config));
    correct = (*out)->ops;
    faulty = *correct;
    if (plant) plant(&faulty);
    (*out)->ops = &faulty;
    return OK;
}

static inline struct doctor_config faulty_config(void) {
    struct doctor_config config = doctor_config_default();
    config.target = DOCTOR_CPU;
    config.quick = 1;
    config.seed = 2;      /* gives the same data every time */
    config.timeout = 100; /* enough on a busy machine, under a sanitizer; tests of hangs set less */
    config.open_device = open_faulty;
    return config;
}

/* Runs one check as the doctor would, on that many GPUs; 0: on emulated devices. */
static inline struct findings *examine_on(doctor_check *check, const struct doctor_config *config,
                                          int gpus) {
    struct doctor d = {
        .config = *config, .findings = findings_new(), .kind = gpus ? DEVICE_CUDA : DEVICE_HOST};
    d.progress =
        mmap(NULL, sizeof *d.progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(d.findings && d.progress != MAP_FAILED);
    d.progress->gpus = gpus;
    d.devices = gpus > 2 ? gpus : 2;
    cr_assert_eq(guard_check(&d, "test", check, NULL, NULL), OK, "%s", error_message());
    munmap(d.progress, sizeof *d.progress);
    cr_assert_gt(d.findings->count, 0);
    return d.findings;
}

static inline struct findings *examine(doctor_check *check, const struct doctor_config *config) {
    return examine_on(check, config, 0);
}

static inline struct findings *examine_faulty(doctor_check *check,
                                              void (*with)(struct device_ops *ops)) {
    struct doctor_config config = faulty_config();
    plant = with;
    return examine(check, &config);
}

/* The row of that name. The test fails if there is none. */
static inline const struct finding *row_of(const struct findings *f, const char *check) {
    for (int i = 0; i < f->count; i++)
        if (!strcmp(f->row[i].check, check)) return &f->row[i];
    cr_assert_fail("no finding about %s", check);
    abort();
}

/* Checks that the rows of these names (separated by '|') are off, and no others. */
static inline void only_off(const struct findings *f, const char *names) {
    char list[600];
    int wanted = 0;
    snprintf(list, sizeof list, "%s", names);
    for (char *save, *name = strtok_r(list, "|", &save); name;
         name = strtok_r(NULL, "|", &save), wanted++) {
        const struct finding *row = row_of(f, name);
        cr_expect_eq((int)row->state, (int)FINDING_OFF, "%s: %s", name, row->measured);
    }
    for (int i = 0; i < f->count; i++)
        cr_expect(f->row[i].state != FINDING_OFF || strstr(names, f->row[i].check),
                  "off as well: %s: %s", f->row[i].check, f->row[i].measured);
    cr_expect_eq(findings_count(f, FINDING_OFF), wanted);
}

#endif
