/* The Chrome trace of spans made by hand, to the byte: which slice goes to which track, in which
 * order, and exact times; which slices arrows join; what counters of memory say. What the command
 * writes is tested in tests/cli/test_trace.c. */
#include <string.h>

#include "base/error.h"
#include "report/chrome/chrome_trace.h"
#include "tests/cli/json.h"
#include "tests/harness/text.h"

static void add(struct run_record *r, int device, enum lane lane, enum phase phase, int step,
                int64_t start, int64_t end, const char *name) {
    struct span s = {
        .device = (int16_t)device, .lane = (uint8_t)lane, .phase = (uint8_t)phase, .step = step};
    s.start_ns = start, s.end_ns = end;
    snprintf(s.name, sizeof s.name, "%s", name);
    if (lane == LANE_COMM) s.bytes = 4096;
    if (phase == PHASE_FORWARD) s.flops = 2e6;
    s.waiting = lane == LANE_HOST;
    span_add(&r->kept, &s);
}

/* Freed by drop. */
static struct run_record *make(int steps) {
    struct run_record *r = calloc(1, sizeof *r);
    cr_assert_not_null(r);
    r->devices = 2, r->steps = steps, r->batch_size = 8;
    strcpy(r->model, "mlp"), strcpy(r->dataset, "mnist"), strcpy(r->kind, "cpu"),
        strcpy(r->optimizer, "adam");
    span_log_init(&r->kept, 1);
    span_log_init(&r->memory, 1);
    return r;
}

static void drop(struct run_record *r) {
    record_free(r);
    free(r);
}

static char *written(const struct trace_run *runs, int count) {
    char *text = NULL;
    size_t bytes;
    struct atomic_file file = {.file = open_memstream(&text, &bytes)};
    /* it closes the file */
    cr_assert_eq(chrome_trace_write(&file, "t", runs, count), OK, "%s", error_message());
    return text;
}

static void has_line(const char *text, const char *line) {
    const char *at = strstr(text, line);
    cr_expect(at && strchr("\n]", at[strlen(line)]), "no %s in:\n%s", line, text);
}

/* Two devices, whose spans come mixed and out of order as ranks hand them over, with an evaluation
 * between the steps. */
Test(report_trace, tracks, .timeout = 30) {
    struct run_record *r = make(2);
    int64_t at = 7000000000000000; /* a machine that has run for months */
    add(r, 1, LANE_COMPUTE, PHASE_FORWARD, 0, at + 1500, at + 2000, "linear \"forward\"");
    add(r, 0, LANE_COMPUTE, PHASE_FORWARD, 1, at + 9001, at + 9100, "b");
    add(r, 0, LANE_COMPUTE, PHASE_EVALUATE, 1, at + 6000, at + 7000, "tested");
    add(r, 0, LANE_HOST, PHASE_FORWARD, 0, at + 3000, at + 4500, "wait for replicas");
    add(r, 0, LANE_COMPUTE, PHASE_NONE, 1, at + 8000, at + 8001, "copy to host");
    add(r, 0, LANE_COMM, PHASE_ALLREDUCE, 0, at + 2000, at + 5000, "bucket 0");
    add(r, 0, LANE_COMPUTE, PHASE_BACKWARD, 0, at + 1000, at + 3000, "a");
    add(r, 0, LANE_COMPUTE, PHASE_FORWARD, 0, at + 500, at + 1000, "a");
    add(r, 0, LANE_COMPUTE, PHASE_FORWARD, 0, at, at + 500, "first");
    const struct trace_run run = {.title = "DDP", .run = r};
    char *text = written(&run, 1);
    struct json *root = NULL;
    cr_assert_eq(json_parse("t", text, strlen(text), &root), OK, "%s", error_message());
    has_line(text, "\"ph\": \"M\", \"pid\": 100, \"tid\": 0, \"name\": \"process_name\", \"args\": "
                   "{\"name\": \"DDP: cpu(0)\"}}");
    has_line(text, "\"ph\": \"M\", \"pid\": 101, \"tid\": 0, \"name\": \"process_name\", \"args\": "
                   "{\"name\": \"DDP: cpu(1)\"}}");
    has_line(text, "\"ph\": \"M\", \"pid\": 100, \"tid\": 3, \"name\": \"thread_name\", \"args\": "
                   "{\"name\": \"communication\"}}");
    has_line(text, "\"pid\": 100, \"tid\": 1, \"name\": \"step 0\", \"cat\": \"steps\", \"ts\": "
                   "0.000, \"dur\": 3.000, \"args\": {}}");
    has_line(text, "\"pid\": 100, \"tid\": 1, \"name\": \"forward\", \"cat\": \"steps\", \"ts\": "
                   "0.000, \"dur\": 1.000, \"args\": {}}");
    has_line(text, "\"pid\": 100, \"tid\": 1, \"name\": \"backward\", \"cat\": \"steps\", \"ts\": "
                   "1.000, \"dur\": 2.000, \"args\": {}}");
    has_line(text, "\"pid\": 100, \"tid\": 1, \"name\": \"evaluate\", \"cat\": \"steps\", \"ts\": "
                   "6.000, \"dur\": 1.000, \"args\": {}}");
    has_line(text, "\"pid\": 100, \"tid\": 1, \"name\": \"step 1\", \"cat\": \"steps\", \"ts\": "
                   "9.001, \"dur\": 0.099, \"args\": {}}");
    has_line(text, "\"pid\": 100, \"tid\": 3, \"name\": \"bucket 0\", \"cat\": \"allreduce\", "
                   "\"ts\": 2.000, \"dur\": 3.000, \"args\": "
                   "{\"step\": 0, \"phase\": \"allreduce\", \"bytes\": 4096}}");
    has_line(text, "\"pid\": 100, \"tid\": 5, \"name\": \"wait for replicas\", \"cat\": "
                   "\"waiting\", \"ts\": 3.000, \"dur\": 1.500, \"args\": "
                   "{\"step\": 0, \"phase\": \"forward\", \"flops\": 2000000}}");
    has_line(text, "\"pid\": 101, \"tid\": 2, \"name\": \"linear \\\"forward\\\"\", \"cat\": "
                   "\"forward\", \"ts\": 1.500, \"dur\": 0.500, "
                   "\"args\": {\"step\": 0, \"phase\": \"forward\", \"flops\": 2000000}}");
    cr_expect(strstr(text, "\"first\"") < strstr(text, "\"a\"") &&
              strstr(text, "\"a\"") < strstr(text, "\"b\""));
    cr_expect(!strstr(text, "\"name\": \"none\""), "%s", text);
    cr_expect_str_eq(json_text(root, "otherData/DDP"),
                     "mlp on mnist, adam, cpu x 2, global batch 8, 2 of 2 steps");
    json_free(root);
    free(text);
    drop(r);
}

/* Several runs: each begins at 0 and has processes of its own. A run without spans is only
 * named. */
Test(report_trace, several_runs, .timeout = 30) {
    struct run_record *a = make(TRACE_STEPS + 5), *b = make(0), *c = make(1);
    add(a, 1, LANE_COMPUTE, PHASE_FORWARD, 0, 5000, 6000, "x");
    add(c, 0, LANE_COMPUTE, PHASE_FORWARD, 0, 90000, 91234, "y");
    c->spans_lost = 7;
    const struct trace_run runs[] = {
        {.title = "one", .run = a}, {.title = "none", .run = b}, {.title = "three", .run = c}};
    char *text = written(runs, 3), process[120];
    struct json *root = NULL;
    cr_assert_eq(json_parse("t", text, strlen(text), &root), OK, "%s", error_message());
    has_line(text, "\"pid\": 101, \"tid\": 1, \"name\": \"step 0\", \"cat\": \"steps\", \"ts\": "
                   "0.000, \"dur\": 1.000, \"args\": {}}");
    snprintf(process, sizeof process,
             "\"pid\": %d, \"tid\": 1, \"name\": \"step 0\", \"cat\": \"steps\", \"ts\": 0.000, "
             "\"dur\": 1.234, ",
             300);
    cr_expect(strstr(text, process), "%s", text);
    cr_expect_str_eq(json_text(root, "otherData/one"),
                     "mlp on mnist, adam, cpu x 2, global batch 8, 1000 of 1005 steps");
    cr_expect(strstr(json_text(root, "otherData/none"), "0 of 0 steps"));
    cr_expect(strstr(json_text(root, "otherData/three"), "1 of 1 steps; 7 spans lost"));
    json_free(root);
    free(text);
    drop(a), drop(b), drop(c);
}

/* ---- arrows and counters ---- */

static struct span *last_span(struct run_record *r) {
    return &r->kept.spans[r->kept.count - 1];
}

static void ends(struct run_record *r, uint64_t sources, uint64_t destinations, int kind) {
    struct span_ends e = {sources, destinations, (uint8_t)kind};
    span_set_ends(last_span(r), &e);
}

/* Two calls of one name in a step: the first of each device belong together, then the second. Rank
 * 1 only reads rank 0, as in a broadcast. */
Test(report_trace, arrows_of_collectives, .timeout = 30) {
    struct run_record *r = make(1);
    for (int call = 0; call < 2; call++) {
        for (int d = 1; d >= 0; d--) {
            int64_t at = 1000 + call * 5000 + d * 100;
            add(r, d, LANE_COMM, PHASE_ALLREDUCE, 0, at, at + 2000, "b");
            ends(r, d ? 3 : 1, d ? 2 : 1, SPAN_COLLECTIVE);
        }
    }
    const struct trace_run run = {.title = "DDP", .run = r};
    char *text = written(&run, 1);
    has_line(text, "\"ph\": \"s\", \"pid\": 100, \"tid\": 3, \"name\": \"b\", \"cat\": "
                   "\"transfer\", \"id\": 1, \"ts\": 0.000}");
    has_line(text, "\"ph\": \"f\", \"pid\": 101, \"tid\": 3, \"name\": \"b\", \"cat\": "
                   "\"transfer\", \"id\": 1, \"ts\": 2.099, \"bp\": \"e\"}");
    has_line(text, "\"ph\": \"s\", \"pid\": 100, \"tid\": 3, \"name\": \"b\", \"cat\": "
                   "\"transfer\", \"id\": 2, \"ts\": 5.000}");
    cr_expect_eq(count_of(text, "\"ph\": \"s\""), 2);
    cr_expect_eq(count_of(text, "\"ph\": \"f\""), 2);
    cr_expect(strstr(text, "\"source\": \"cpu(0), cpu(1)\", \"destination\": \"cpu(1)\""));
    free(text);
    drop(r);
}

/* Device 0 takes from device 1 what its last kernel before made, and gives it to the first one
 * behind. Waits, and slices without a length, have no arrows. */
Test(report_trace, arrows_of_copies, .timeout = 30) {
    struct run_record *r = make(1);
    add(r, 1, LANE_COMPUTE, PHASE_FORWARD, 0, 0, 1000, "made");
    add(r, 1, LANE_COMPUTE, PHASE_FORWARD, 0, 1000, 3500, "too late");
    add(r, 1, LANE_COMPUTE, PHASE_BACKWARD, 0, 5500, 5900, "wait");
    last_span(r)->waiting = 1;
    add(r, 1, LANE_COMPUTE, PHASE_BACKWARD, 0, 6000, 7000, "used");
    add(r, 0, LANE_COMPUTE, PHASE_GATHER, 0, 3000, 4000, "take");
    ends(r, 2, 1, 0);
    add(r, 0, LANE_COMPUTE, PHASE_SCATTER, 0, 4000, 5000, "give");
    ends(r, 1, 2, 0);
    add(r, 0, LANE_COMPUTE, PHASE_SCATTER, 0, 5000, 5000, "no time");
    ends(r, 1, 2, 0);
    add(r, 0, LANE_COMPUTE, PHASE_INPUT, 0, 5000, 5100, "from the host");
    ends(r, 0, 1, SPAN_FROM_HOST);
    const struct trace_run run = {.title = "DP", .run = r};
    char *text = written(&run, 1);
    has_line(text, "\"ph\": \"s\", \"pid\": 101, \"tid\": 2, \"name\": \"take\", \"cat\": "
                   "\"transfer\", \"id\": 1, \"ts\": 0.999}");
    has_line(text, "\"ph\": \"f\", \"pid\": 100, \"tid\": 2, \"name\": \"take\", \"cat\": "
                   "\"transfer\", \"id\": 1, \"ts\": 3.000, \"bp\": \"e\"}");
    has_line(text, "\"ph\": \"s\", \"pid\": 100, \"tid\": 2, \"name\": \"give\", \"cat\": "
                   "\"transfer\", \"id\": 2, \"ts\": 4.999}");
    has_line(text, "\"ph\": \"f\", \"pid\": 101, \"tid\": 2, \"name\": \"give\", \"cat\": "
                   "\"transfer\", \"id\": 2, \"ts\": 6.000, \"bp\": \"e\"}");
    cr_expect_eq(count_of(text, "\"ph\": \"s\""), 2);
    cr_expect(strstr(text, "\"source\": \"host\", \"destination\": \"cpu(0)\""));
    free(text);
    drop(r);
}

static void hold(struct run_record *r, int device, enum mem_cause cause, int64_t at,
                 uint64_t bytes) {
    struct span s = {.device = (int16_t)device, .lane = LANE_MEMORY, .phase = (uint8_t)cause};
    s.start_ns = s.end_ns = at, s.bytes = bytes;
    span_add(&r->memory, &s);
}

/* What a device holds before its first span is the value at 0; what it frees after the last one is
 * not shown; a cause that never held anything is no series. */
Test(report_trace, counters_of_memory, .timeout = 30) {
    struct run_record *r = make(1);
    add(r, 0, LANE_COMPUTE, PHASE_FORWARD, 0, 10000, 20000, "a");
    hold(r, 0, MEM_PARAMS, 1000, 64);
    hold(r, 0, MEM_COMM, 2000, 0);
    hold(r, 1, MEM_PARAMS, 3000, 999);
    hold(r, 0, MEM_ACTIVATIONS, 12500, 128);
    hold(r, 0, MEM_ACTIVATIONS, 13000, 0);
    hold(r, 0, MEM_PARAMS, 30000, 0);
    const struct trace_run run = {.title = "single", .run = r};
    char *text = written(&run, 1);
    static const char *const lines[] = {"0.000, \"args\": {\"params\": 64, \"activations\": 0}",
                                        "2.500, \"args\": {\"params\": 64, \"activations\": 128}",
                                        "3.000, \"args\": {\"params\": 64, \"activations\": 0}",
                                        "10.000, \"args\": {\"params\": 64, \"activations\": 0}"};
    for (int i = 0; i < 4; i++) {
        char line[200];
        snprintf(line, sizeof line,
                 "\"ph\": \"C\", \"pid\": 100, \"tid\": 0, \"name\": \"memory\", \"ts\": %s}",
                 lines[i]);
        has_line(text, line);
    }
    cr_expect_eq(count_of(text, "\"ph\": \"C\""), 4);
    free(text);
    drop(r);
}

/* With many devices arrows are drawn in the first steps only, and the file says so. */
Test(report_trace, few_arrows_of_many_devices, .timeout = 30) {
    struct run_record *r = make(1000);
    r->devices = 64;
    for (int step = 0; step < 4; step++)
        for (int d = 0; d < 64; d++) {
            add(r, d, LANE_COMM, PHASE_ALLREDUCE, step, step * 1000, step * 1000 + 900, "b");
            ends(r, ~(uint64_t)0, (uint64_t)1 << d, SPAN_COLLECTIVE);
        }
    r->device[3].clock_error_ns = 2500;
    const struct trace_run run = {.title = "DDP", .run = r};
    char *text = written(&run, 1);
    cr_expect_eq(count_of(text, "\"ph\": \"s\""), 64 * 63, "one step of them");
    cr_expect(strstr(text, "\"DDP, arrows\": \"in the first 1 steps\""));
    cr_expect(strstr(text, "times of GPUs are set on it within 2500 ns"));
    free(text);
    drop(r);
}

Test(report_trace, no_file_no_work, .timeout = 30) {
    struct atomic_file none = {0};
    struct run_record *r = make(1);
    const struct trace_run run = {.title = "single", .run = r};
    cr_expect_eq(chrome_trace_write(&none, "", &run, 1), OK);
    drop(r);
}
