/* Tests the Chrome trace of handmade spans byte by byte: the track and the order of each slice, and
 * exact times. tests/app/cli/test_trace.c tests the files of the command. */
#include <string.h>

#include "base/error.h"
#include "report/chrome/chrome_trace.h"
#include "tests/app/cli/json.h"

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
    /* chrome_trace_write closes the file */
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
    char *text = written(runs, 3);
    struct json *root = NULL;
    cr_assert_eq(json_parse("t", text, strlen(text), &root), OK, "%s", error_message());
    has_line(text, "\"pid\": 101, \"tid\": 1, \"name\": \"step 0\", \"cat\": \"steps\", \"ts\": "
                   "0.000, \"dur\": 1.000, \"args\": {}}");
    has_line(text, "\"pid\": 300, \"tid\": 1, \"name\": \"step 0\", \"cat\": \"steps\", \"ts\": "
                   "0.000, \"dur\": 1.234, \"args\": {}}");
    cr_expect_str_eq(json_text(root, "otherData/one"),
                     "mlp on mnist, adam, cpu x 2, global batch 8, 1000 of 1005 steps");
    cr_expect(strstr(json_text(root, "otherData/none"), "0 of 0 steps"));
    cr_expect(strstr(json_text(root, "otherData/three"), "1 of 1 steps; 7 spans lost"));
    json_free(root);
    free(text);
    drop(a), drop(b), drop(c);
}

/* The args of a copy or collective name the devices that were read and written. */
Test(report_trace, ends_of_copies, .timeout = 30) {
    struct run_record *r = make(1);
    add(r, 1, LANE_COMM, PHASE_ALLREDUCE, 0, 1000, 3000, "b");
    span_set_ends(&r->kept.spans[0], &(struct span_ends){3, 2, SPAN_COLLECTIVE});
    add(r, 0, LANE_COMPUTE, PHASE_INPUT, 0, 5000, 5100, "from the host");
    span_set_ends(&r->kept.spans[1], &(struct span_ends){0, 1, SPAN_FROM_HOST});
    const struct trace_run run = {.title = "DDP", .run = r};
    char *text = written(&run, 1);
    cr_expect(strstr(text, "\"source\": \"cpu(0), cpu(1)\", \"destination\": \"cpu(1)\""));
    cr_expect(strstr(text, "\"source\": \"host\", \"destination\": \"cpu(0)\""));
    free(text);
    drop(r);
}
