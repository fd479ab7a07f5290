/* Tests --trace of train, compare and profile: Perfetto can draw the file, and its times are those
 * of --json to the nanosecond. Also tests the limit in steps. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/trace.h"

static const char MODEL[] = "--data-dir d --model mlp --mlp-hidden 20 --batch-size 24";

static void train(const char *mode, const char *title, int devices, int steps, const char *more) {
    cli_well("train --mode %s --devices %d %s --quiet --json j --trace t %s", mode, devices,
             strstr(more, "--model") ? "--data-dir d --batch-size 24" : MODEL, more);
    struct json *trace = json_of("t"), *run = json_of("j");
    cr_expect_eq(processes(trace), devices);
    check_traced_run(trace, title, run, steps);
    begins_at_zero(trace, 100, devices);
    json_free(trace), json_free(run);
}

/* Two epochs, so that there is an evaluation between steps. The last batch of each is short. */
CliTest(cli_trace, train, 120) {
    put_data(100, 20);
    train("single", "single", 1, 10, "--epochs 2");
    train("dp", "DP", 3, 10, "--epochs 2 --virtual-devices off");
    train("dp", "DP", 2, 10, "--epochs 2 --loss-in-forward");
    train("dp", "DP", 2, 10, "--epochs 2");
    train("ddp", "DDP", 2, 10, "--epochs 2");
    train("ddp", "DDP", 3, 4, "--steps 4 --bucket-cap-mb 0.01");
    train("single", "single", 1, 3, "--steps 3 --model lenet");
}

/* No part of an allreduce overlaps a kernel. */
CliTest(cli_trace, no_overlap, 120) {
    put_data(100, 20);
    train("ddp", "DDP", 2, 4, "--steps 4 --model lenet --bucket-cap-mb 0.01 --no-overlap");
    struct json *run = json_of("j");
    for (const struct json *x = json_at(run, "per_device")->child; x; x = x->next)
        cr_expect(json_int(x, "comm_ns") > 0 &&
                  json_int(x, "comm_exposed_ns") == json_int(x, "comm_ns"));
    json_free(run);
}

static void several(const char *command, const char *const *keys, const char *const *titles,
                    int runs) {
    int pid = 0;
    cli_well("%s --devices 2 %s --steps 9 --epochs 3 --json j --trace t", command, MODEL);
    struct json *trace = json_of("t"), *root = json_of("j");
    for (int i = 0; i < runs; i++) {
        char path[64];
        check_traced_run(trace, titles[i], json_at(root, keys[i]), 9);
        snprintf(path, sizeof path, "%s: cpu(0)", titles[i]);
        cr_expect_gt(process_of(trace, path), pid, "runs come in the order of the tables");
        pid = process_of(trace, path);
        begins_at_zero(trace, pid, 2);
    }
    json_free(trace), json_free(root);
}

CliTest(cli_trace, compare_and_profile, 120) {
    static const char *const modes[] = {"single", "dp", "ddp"}, *const mode_titles[] = {
                                                                    "single", "DP", "DDP"};
    static const char *const kinds[] = {"dp", "dp_loss_in_forward", "ddp"};
    static const char *const kind_titles[] = {"DP", "DP, loss in forward", "DDP"};
    put_data(100, 20);
    several("compare --virtual-devices 2", modes, mode_titles, 3);
    /* here lock step reads the parameters of the single run */
    several("compare --virtual-devices off", modes, mode_titles, 3);
    several("profile", kinds, kind_titles, 3);
}

/* ---- who sends what to whom ---- */

/* Bytes of all slices of training whose args name these ends. */
static int64_t bytes_between(const struct json *trace, const char *source,
                             const char *destination) {
    int64_t sum = 0;
    for (const struct json *e = first_event(trace); e; e = e->next) {
        const struct json *args = strcmp(json_text(e, "ph"), "X") ? NULL : json_find(e, "args");
        const struct json *from = args ? json_find(args, "source") : NULL,
                          *to = args ? json_find(args, "destination") : NULL,
                          *bytes = args ? json_find(args, "bytes") : NULL;
        if (from && to && bytes && strcmp(json_text(args, "phase"), "evaluate") &&
            strcmp(json_text(args, "phase"), "none") && !strcmp(from->string, source) &&
            !strcmp(to->string, destination))
            sum += bytes->integer;
    }
    return sum;
}

/* What DP moves by hand: per step, the parameters to device 1, its rows and labels too, its outputs
 * and gradients back. */
CliTest(cli_trace, copies_name_their_ends, 120) {
    put_data(48, 8);
    cli_well("train --mode dp --devices 2 %s --epochs 1 --quiet --json j --trace t", MODEL);
    struct json *trace = json_of("t"), *run = json_of("j");
    int64_t to_1 = bytes_between(trace, "cpu(0)", "cpu(1)"),
            host_to_1 = bytes_between(trace, "host", "cpu(1)"),
            gathered = bytes_between(trace, "cpu(1)", "cpu(0)"),
            reduced = bytes_between(trace, "cpu(0), cpu(1)", "cpu(0)");
    const struct json *x = json_at(run, "per_device/1");
    cr_expect_eq(to_1 + host_to_1, json_int(x, "bytes_in"));
    cr_expect_eq(gathered + reduced, json_int(x, "bytes_out"));
    cr_expect(to_1 > reduced && reduced > gathered && gathered == 2 * 12 * 10 * 4, "%ld %ld %ld",
              (long)to_1, (long)reduced, (long)gathered);
    json_free(trace), json_free(run);
}

/* The trace of a longer run has the first steps, each of them whole. */
CliTest(cli_trace, the_first_steps, 120) {
    put_data(8, 4);
    cli_well("train --mode ddp --devices 2 --data-dir d --model mlp --mlp-hidden 1 --batch-size 8 "
             "--epochs %d --quiet --trace t",
             TRACE_STEPS + 20);
    struct json *trace = json_of("t");
    for (int rank = 0; rank < 2; rank++)
        check_steps(trace, process_of(trace, rank ? "DDP: cpu(1)" : "DDP: cpu(0)"), TRACE_STEPS);
    cr_expect(strstr(json_text(trace, "otherData/DDP"), "1000 of 1020 steps"));
    json_free(trace);
}
