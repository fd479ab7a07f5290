/* What the tests of the doctor share: devices that lie, and one check at a time on them.
 *
 * A device that lies is a real one whose table of functions (device/table.h) is a copy with one
 * entry replaced; the doctor gets it through doctor_config.open_device, as any program's own
 * devices. */
#ifndef TESTS_TEST_DOCTOR_H
#define TESTS_TEST_DOCTOR_H

#include <sys/mman.h>

#include "base/error.h"
#include "device/table.h"
#include "doctor/guard.h"
#include "tests/harness/harness.h"

static struct device_ops lying;         /* the table that devices opened by open_lying have, */
static const struct device_ops *honest; /* and the one it was copied from */
static void (*plant)(struct device_ops *ops); /* replaces an entry */

static inline int open_lying(struct device **out, const struct device_config *config) {
    CHECK(device_open(out, config));
    honest = (*out)->ops;
    lying = *honest;
    if (plant) plant(&lying);
    (*out)->ops = &lying;
    return OK;
}

static inline struct doctor_config lying_config(void) {
    struct doctor_config config = doctor_config_default();
    config.target = DOCTOR_CPU;
    config.quick = 1;
    config.seed = 2;      /* a test is the same every time */
    config.timeout = 100; /* on a busy machine, under a sanitizer; what is to hang sets its own */
    config.open_device = open_lying;
    return config;
}

/* Runs one check as the doctor would. gpus 0: on emulated devices. */
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

static inline struct findings *examine_lying(doctor_check *check,
                                             void (*with)(struct device_ops *ops)) {
    struct doctor_config config = lying_config();
    plant = with;
    return examine(check, &config);
}

/* The row of that name; fails the test where there is none. */
static inline const struct finding *row_of(const struct findings *f, const char *check) {
    for (int i = 0; i < f->count; i++)
        if (!strcmp(f->row[i].check, check)) return &f->row[i];
    cr_assert_fail("no finding about %s", check);
    abort();
}

/* These rows are off, names separated by '|', and no other. */
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
