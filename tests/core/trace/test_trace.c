/* Span logs keep every span once and in order; the ledgers of memory and traffic are exact. */
#include <pthread.h>

#include "tests/harness/harness.h"
#include "trace/ledger.h"
#include "trace/span.h"

static struct span make_span(int phase, int device, int lane, int64_t start, int64_t end,
                             int waiting) {
    struct span s = {.start_ns = start,
                     .end_ns = end,
                     .step = 7,
                     .rank = 1,
                     .device = (int16_t)device,
                     .lane = (uint8_t)lane,
                     .phase = (uint8_t)phase,
                     .waiting = (uint8_t)waiting};
    snprintf(s.name, sizeof s.name, "span %lld", (long long)start);
    return s;
}

Test(span, every_phase_lane_and_cause_has_a_name_of_its_own, .timeout = 30) {
    for (int a = 0; a < PHASE_COUNT; a++)
        for (int b = 0; b < a; b++)
            cr_assert_str_neq(phase_name((enum phase)a), phase_name((enum phase)b));
    for (int a = 0; a < MEM_CAUSE_COUNT; a++)
        for (int b = 0; b < a; b++)
            cr_assert_str_neq(mem_cause_name((enum mem_cause)a), mem_cause_name((enum mem_cause)b));
    cr_assert_str_eq(phase_name(PHASE_SCATTER_GRAD), "scatter_grad");
    cr_assert_str_eq(phase_name(PHASE_PROOF), "proof");
    cr_assert_str_eq(lane_name(LANE_COMM), "comm");
    cr_assert_str_eq(mem_cause_name(MEM_GATHERED), "gathered output");
    cr_assert_str_eq(mem_cause_name(MEM_WORKSPACE), "workspace");
    cr_assert_str_eq(phase_name((enum phase)99), "unknown");
}

Test(span, a_log_keeps_order_over_its_growth, .timeout = 30) {
    struct span_log log;
    span_log_init(&log, 1);
    for (int i = 0; i < 5000; i++) {
        struct span s = make_span(PHASE_FORWARD, 0, LANE_COMPUTE, i, i + 1, 0);
        span_add(&log, &s);
    }
    cr_assert_eq(log.count, 5000);
    cr_assert_eq(log.dropped, 0);
    for (int i = 0; i < 5000; i++) {
        char name[32];
        snprintf(name, sizeof name, "span %d", i);
        cr_assert_eq(log.spans[i].start_ns, i);
        cr_assert_str_eq(log.spans[i].name, name);
    }
    span_log_free(&log);
    span_log_free(&log);
    span_log_free(NULL);
}

Test(span, a_log_that_is_off_or_absent_takes_nothing, .timeout = 30) {
    struct span_log log;
    struct span s = make_span(PHASE_LOSS, 0, LANE_COMPUTE, 1, 2, 0);
    span_log_init(&log, 0);
    span_add(&log, &s);
    span_add(NULL, &s);
    cr_assert_eq(log.count, 0);
    cr_assert_null(log.spans);
    span_log_free(&log);
}

Test(span, a_name_without_an_end_is_cut, .timeout = 30) {
    struct span_log log;
    struct span s = make_span(PHASE_LOSS, 0, LANE_COMPUTE, 1, 2, 0);
    memset(s.name, 'x', sizeof s.name);
    span_log_init(&log, 1);
    span_add(&log, &s);
    cr_assert_eq(strlen(log.spans[0].name), sizeof s.name - 1);
    span_log_free(&log);
}

Test(ledger, peaks_are_taken_at_the_right_moment, .timeout = 30) {
    struct ledger l = {0};
    ledger_add(&l, MEM_PARAMS, 100);
    ledger_add(&l, MEM_ACTIVATIONS, 50); /* 150 */
    ledger_remove(&l, MEM_ACTIVATIONS, 50);
    ledger_add(&l, MEM_GRADS, 40);
    ledger_add(&l, MEM_INPUT, 20); /* 160: the peak of the total, without activations */
    ledger_remove(&l, MEM_INPUT, 20);
    cr_assert_eq(l.total, 140);
    cr_assert_eq(l.total_peak, 160);
    cr_assert_eq(l.peak[MEM_ACTIVATIONS], 50);
    cr_assert_eq(l.at_peak[MEM_ACTIVATIONS], 0);
    cr_assert_eq(l.at_peak[MEM_INPUT], 20);
    cr_assert_eq(l.now[MEM_INPUT], 0);
}

Test(ledger, describes_the_largest_first, .timeout = 30) {
    struct ledger l = {0};
    char text[128];
    ledger_describe(&l, text, sizeof text);
    cr_assert_str_eq(text, "nothing");
    ledger_add(&l, MEM_PARAMS, 3 << 20);
    ledger_add(&l, MEM_COMM, 512);
    ledger_add(&l, MEM_ACTIVATIONS, 5ull << 30);
    ledger_describe(&l, text, sizeof text);
    ledger_add(&l, MEM_INPUT, 1 << 20);
    ledger_describe(&l, text, sizeof text);
    cr_assert_str_eq(text, "activations 5 GiB, params 3 MiB, input 1 MiB in 1 tensor, comm 512 B");
    ledger_add(&l, MEM_INPUT, 5 << 20);
    ledger_describe(&l, text, sizeof text);
    cr_assert_str_eq(text, "activations 5 GiB, input 6 MiB in 2 tensors, params 3 MiB, comm 512 B");
    for (size_t room = 1; room < sizeof text; room++) { /* cut, never written past */
        char small[128];
        memset(small, '#', sizeof small);
        ledger_describe(&l, small, room);
        cr_assert(strlen(small) < room && small[room] == '#', "room %zu: %s", room, small);
        cr_assert(!strncmp(small, text, strlen(small)));
    }
}

Test(ledger, bytes_for_people, .timeout = 30) {
    const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1, "1 B"},
                 {1023, "1023 B"},
                 {1024, "1 KiB"},
                 {1536, "1.5 KiB"},
                 {1000 * 1024, "0.977 MiB"},
                 {999 * 1024, "999 KiB"},
                 {3628072, "3.46 MiB"},
                 {1ull << 30, "1 GiB"},
                 {UINT64_MAX, "16 EiB"}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char text[32];
        cr_assert_str_eq(format_bytes(cases[c].bytes, text, sizeof text), cases[c].text, "%s",
                         text);
    }
}

static void *add_many(void *traffic) {
    for (int i = 0; i < 20000; i++)
        traffic_add(traffic, i % 3, 3, 2);
    return NULL;
}

Test(traffic, adds_from_many_threads_are_exact, .timeout = 30) {
    static struct traffic traffic;
    pthread_t threads[4];
    for (int t = 0; t < 4; t++)
        pthread_create(&threads[t], NULL, add_many, &traffic);
    for (int t = 0; t < 4; t++)
        pthread_join(threads[t], NULL);
    cr_assert_eq(traffic_into(&traffic, 3), 160000);
    cr_assert_eq(traffic_out_of(&traffic, 3), 0);
    cr_assert_eq(traffic_out_of(&traffic, 0), traffic.bytes[0][3]);
}

Test(traffic, into_and_out_of_leave_out_moves_within_a_device, .timeout = 30) {
    static struct traffic traffic;
    traffic_add(&traffic, LINK_HOST, 0, 1);
    traffic_add(&traffic, 0, 1, 10);
    traffic_add(&traffic, 1, 0, 100);
    traffic_add(&traffic, 0, 0, 1000);
    traffic_add(&traffic, 0, LINK_HOST, 10000);
    traffic_add(&traffic, -1, 0, 5); /* no such devices: neither counted nor written */
    traffic_add(&traffic, 0, LINK_COUNT, 5);
    cr_assert_eq(traffic_into(&traffic, 0), 101);
    cr_assert_eq(traffic_out_of(&traffic, 0), 10010);
    cr_assert_eq(traffic_into(&traffic, LINK_HOST), 10000);
    cr_assert_eq(traffic_into(&traffic, 1), 10);
    cr_assert_eq(traffic_into(&traffic, LINK_COUNT), 0);
    static struct traffic sum;
    traffic_join(&sum, &traffic), traffic_join(&sum, &traffic);
    cr_assert(sum.bytes[LINK_HOST][0] == 2 && sum.bytes[1][0] == 200 && sum.bytes[0][0] == 2000);
    traffic_leave(&sum, &traffic);
    cr_assert_arr_eq(&sum, &traffic, sizeof sum);
}
