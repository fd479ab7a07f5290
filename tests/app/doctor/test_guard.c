/* Tests the guard and its findings: a check that crashes, hangs, fails or finds nothing becomes a
 * row of the table, and the other checks continue. */
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/app/doctor/shared.h"

/* ---- checks that do not finish ---- */

static int fatal_launch(struct stream *stream, enum op op, const struct op_args *args) {
    if (op == OP_ADD_FORWARD) raise(SIGKILL);
    if (op == OP_FILL) _exit(7);
    if (op == OP_CLIP)
        return fail(ERR_FAILED, "clip on %s: a fault of the test", stream->device->name);
    return correct->launch(stream, op, args);
}

static void fatal(struct device_ops *ops) {
    ops->launch = fatal_launch;
}

Test(doctor_guard, a_crash_is_one_finding_and_the_others_go_on, .timeout = 120) {
    struct findings *f = examine_faulty(check_ops, fatal);
    only_off(f, "cpu: add forward|cpu: fill|cpu: clip");
    cr_expect(strstr(row_of(f, "cpu: add forward")->measured, "ended by signal 9"));
    cr_expect(strstr(row_of(f, "cpu: fill")->measured, "status 7"));
    cr_expect(strstr(row_of(f, "cpu: clip")->measured, "a fault of the test"));
    for (int op = 0; op < OP_COUNT; op++) {
        char name[CHECK_NAME_BYTES];
        snprintf(name, sizeof name, "cpu: %s", op_name((enum op)op));
        row_of(f, name);
    }
    cr_expect_eq(f->count, OP_COUNT, "each op once");
    findings_free(f);
}

static int hanging_launch(struct stream *stream, enum op op, const struct op_args *args) {
    for (; op == OP_HASH;)
        pause();
    return correct->launch(stream, op, args);
}

static void hangs(struct device_ops *ops) {
    ops->launch = hanging_launch;
}

Test(doctor_guard, a_hang_is_stopped_in_time, .timeout = 200) {
    struct doctor_config config = faulty_config();
    config.timeout = test_short() ? 40 : 20; /* no other op may take as long on a busy machine */
    plant = hangs;
    int64_t start = now_ns();
    struct findings *f = examine(check_ops, &config);
    only_off(f, "cpu: hash");
    cr_expect(strstr(row_of(f, "cpu: hash")->measured, "did not finish within"));
    cr_expect_lt((double)(now_ns() - start) * 1e-9, OP_COUNT * config.timeout / 2);
    cr_expect_lt(waitpid(-1, NULL, WNOHANG), 0, "a process is left");
    findings_free(f);
}

static int refuse_to_open(struct device **out, const struct device_config *config) {
    *out = NULL;
    return fail(ERR_MEMORY, "device %d: not today", config->index);
}

Test(doctor_guard, nothing_opens, .timeout = 200) {
    struct doctor_config config = faulty_config();
    struct findings *f = findings_new();
    config.open_device = refuse_to_open;
    config.timeout = 20;
    int code = doctor_run(&config, f, NULL, NULL);
    cr_expect_eq(code, ERR_CHECK);
    cr_expect_eq(error_exit_status(code), 3);
    cr_expect(strstr(error_message(), "the first is cpu: peers: device 0: not today"), "%s",
              error_message());
    cr_expect_gt(findings_count(f, FINDING_OFF), OP_COUNT, "each step of each check says so");
    findings_free(f);
}

static int silent(struct doctor *d, int first) {
    (void)d, (void)first;
    return OK;
}

Test(doctor_guard, a_check_that_finds_nothing_is_off, .timeout = 20) {
    struct doctor_config config = faulty_config();
    struct findings *f = examine(silent, &config);
    only_off(f, "cpu: test");
    findings_free(f);
}

/* ---- findings ---- */

Test(doctor_guard, a_full_table_says_so, .timeout = 20) {
    struct findings *f = findings_new();
    for (int i = 0; i < FINDINGS_MOST + 5; i++)
        finding_add(f, FINDING_OK, "x", "y", "");
    cr_expect_eq(f->count, FINDINGS_MOST);
    cr_expect_eq(findings_count(f, FINDING_OFF), 1);
    findings_free(f);
    findings_free(NULL);
}
