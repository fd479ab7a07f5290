/* --host-serial: the lock that all launches of DP's threads share. The bits stay, every launch of
 * training takes it, and the time with it and the wait for it are phases of their own, in DP
 * alone. */
#include "tests/cli/data.h"
#include "tests/cli/trace.h"

/* Long enough that the threads of both devices get to run while one of them holds the lock, on a
 * busy machine too. */
enum { HOLD_US = 3000, STEPS = 3, DEVICES = 2 };

#define RUN                                                                                 \
    "train --mode dp --devices 2 --data-dir d --model mlp --mlp-hidden 16 --batch-size 32 " \
    "--steps 3 --momentum 0.9 --quiet"

/* The launches of a run: how many took the lock, and whether each did so for its time. */
struct launches {
    int taken, waits, in_forward, kernels;
    int64_t held_ns, least_ns;
};

/* 1: a kernel of training. Copies, writes and sums over devices are no launches of an op. */
static int is_launch(const struct json *event, const char *phase, const char *name) {
    return strcmp(phase, "evaluate") && strcmp(phase, "none") &&
           !json_find(json_at(event, "args"), "bytes") && strncmp(name, "copy", 4);
}

static struct launches launches_in(const char *path, int device) {
    struct launches l = {.least_ns = INT64_MAX};
    struct json *trace = json_of(path);
    int64_t end[2] = {0, 0}; /* of the last span on the host's track, of the last wait */
    for (const struct json *e = first_event(trace); e; e = e->next) {
        if (strcmp(json_text(e, "ph"), "X") || json_int(e, "pid") % 100 != device ||
            json_int(e, "tid") == TRACK_STEPS)
            continue;
        const char *phase = json_text(e, "args/phase"), *name = json_text(e, "name");
        if (json_int(e, "tid") == TRACK_COMPUTE && is_launch(e, phase, name)) l.kernels++;
        if (json_int(e, "tid") != TRACK_HOST) continue;
        int64_t ns = ns_of(e, "dur");
        if (!strcmp(phase, "host_serial")) {
            l.waits++;
            end[1] = ns_of(e, "ts") + ns;
            cr_expect(!strncmp(name, "wait: ", 6), "%s", name);
        }
        if (strcmp(phase, "host_launch")) continue;
        cr_expect(!strncmp(name, "launch: ", 8), "%s", name);
        cr_expect_eq(ns_of(e, "ts"), end[1], "the lock is held from the end of the wait on");
        cr_expect_geq(ns_of(e, "ts"), end[0]);
        end[0] = ns_of(e, "ts") + ns;
        l.taken++;
        l.held_ns += ns;
        if (ns < l.least_ns) l.least_ns = ns;
    }
    json_free(trace);
    return l;
}

static int by_start(const void *left, const void *right) {
    const int64_t *a = left, *b = right;
    return a[0] < b[0] ? -1 : a[0] > b[0];
}

/* While one device's thread holds the lock, no other one does. */
static void one_holds_it(const char *path) {
    int64_t held[1024][2];
    int n = 0;
    struct json *trace = json_of(path);
    for (const struct json *e = first_event(trace); e; e = e->next) {
        if (strcmp(json_text(e, "ph"), "X") || strcmp(json_text(e, "cat"), "host_launch")) continue;
        cr_assert_lt(n, 1024);
        held[n][0] = ns_of(e, "ts");
        held[n][1] = held[n][0] + ns_of(e, "dur");
        n++;
    }
    json_free(trace);
    qsort(held, (size_t)n, sizeof *held, by_start);
    for (int i = 1; i < n; i++)
        cr_expect_leq(held[i - 1][1], held[i][0], "two launches at %ld ns", (long)held[i][0]);
}

static int64_t phase_of(const struct json *record, int device, const char *phase) {
    char path[96];
    snprintf(path, sizeof path, "per_device/%d/phase_ns/%s", device, phase);
    return json_int(record, path);
}

Test(cli_host_serial, times_change_and_bits_do_not, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    put_data(103, 20);
    cli_well(RUN " --save w0 --log-loss l0 --trace t0 --json j0");
    cli_well(RUN " --save w1 --log-loss l1 --trace t1 --json j1 --host-serial %d", HOLD_US);
    cli_well(RUN " --save w2 --log-loss l2 --trace t2 --json j2 --host-serial=%d,forward", HOLD_US);
    cr_expect(cli_same_file("w0", "w1") && cli_same_file("w0", "w2"), "other weights");
    cr_expect(cli_same_file("l0", "l1") && cli_same_file("l0", "l2"), "other losses");
    struct json *none = json_of("j0"), *all = json_of("j1"), *forward = json_of("j2");
    cr_expect_eq(json_double(none, "host_serial_us"), 0);
    cr_expect_eq(json_double(all, "host_serial_us"), HOLD_US);
    cr_expect(json_at(forward, "host_serial_forward")->integer &&
              !json_at(all, "host_serial_forward")->integer);
    int64_t waited = 0;
    for (int d = 0; d < DEVICES; d++) {
        struct launches off = launches_in("t0", d), on = launches_in("t1", d),
                        part = launches_in("t2", d);
        cr_expect(off.taken == 0 && off.waits == 0, "device %d: a lock that nobody asked for", d);
        cr_expect(phase_of(none, d, "host_launch") == 0 && phase_of(none, d, "host_serial") == 0);
        cr_expect(on.taken == on.waits && on.taken > 0);
        cr_expect_eq(on.taken, on.kernels, "device %d: %d of %d launches took the lock", d,
                     on.taken, on.kernels);
        cr_expect_geq(on.least_ns, HOLD_US * 1000);
        cr_expect_eq(phase_of(all, d, "host_launch"), on.held_ns, "record and trace");
        cr_expect(part.taken > 0 && part.taken < on.taken && part.taken % STEPS == 0,
                  "device %d: %d launches in forward, %d in all", d, part.taken, on.taken);
        waited += phase_of(all, d, "host_serial");
    }
    one_holds_it("t1");
    /* Both threads come to forward at the same time, and while one holds the lock the other
     * cannot. A wait for a lock that is free takes a thousandth of this. */
    cr_expect_gt(waited, HOLD_US * 100, "nobody waited");
    json_free(none), json_free(all), json_free(forward);
}

/* compare and profile run DP with the lock and the others without; the verdict stays. */
Test(cli_host_serial, compare_and_profile, .timeout = 120, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    struct cli c;
    put_data(103, 20);
    cli_run(&c, "compare --data-dir d --model mlp --mlp-hidden 16 --batch-size 32 --steps 3 "
                "--host-serial 100 --json j");
    cr_assert_eq(c.status, 0, "%s", c.err);
    cr_expect(matches(c.out, "^  host_launch +- +[0-9.]+ \\| [0-9.]+ +-$"), "%s", c.out);
    cr_expect(matches(c.out, "^  host_serial +- +[0-9.]+ \\| [0-9.]+ +-$"), "%s", c.out);
    cr_expect(matches(c.out, "^DP = single: identical to the bit"), "%s", c.out);
    cli_free(&c);
    struct json *j = json_of("j");
    cr_expect_eq(phase_of(json_at(j, "ddp"), 0, "host_launch"), 0);
    cr_expect_eq(phase_of(json_at(j, "single"), 0, "host_launch"), 0);
    cr_expect_gt(phase_of(json_at(j, "dp"), 1, "host_launch"), 0);
    json_free(j);
    for (int on = 0; on < 2; on++) {
        cli_run(&c,
                "profile --details --data-dir d --model mlp --mlp-hidden 16 --batch-size 32 "
                "--steps 2 %s",
                on ? "--host-serial 50" : "");
        cr_assert_eq(c.status, 0, "%s", c.err);
        cr_expect_eq(matches(c.out, "^  \\(host launch\\) +[0-9.]+ +[0-9.]+$"), on, "%s", c.out);
        cr_expect_eq(matches(c.out, "^  \\(host serial\\) +[0-9.]+ +[0-9.]+$"), on, "%s", c.out);
        cr_expect_eq(matches(c.out, "^DP, host serial 50 us: 2 devices"), on, "%s", c.out);
        cr_expect_eq(matches(c.out, "^--host-serial: each launch of DP's threads holds one"), on,
                     "%s", c.out);
        cli_free(&c);
    }
}

Test(cli_host_serial, refused, .timeout = 60, .init = cli_folder_make, .fini = cli_folder_remove) {
    cli_fails(2, "--host-serial: no effect in mode single|one thread launches|--mode dp",
              "train --host-serial 20");
    cli_fails(2, "--host-serial: no effect in mode ddp|a process, with a lock of its own|--mode dp",
              "train --mode ddp --host-serial 20,forward");
    cli_fails(2, "--host-serial: no effect beside --sync-bn",
              "compare --model resnet18 --sync-bn --host-serial 20");
    cli_fails(2, "--host-serial|'20,backward'|20,forward",
              "train --mode dp --host-serial 20,backward");
    cli_fails(2, "--host-serial|0.01", "train --mode dp --host-serial 0");
    cli_fails(2, "--host-serial|-5", "train --mode dp --host-serial -5");
    cli_fails(2, "--host-serial|1e7", "train --mode dp --host-serial 1e7");
}
