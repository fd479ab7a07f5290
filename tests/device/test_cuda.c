/* The half of device/cuda that talks to the CUDA runtime, run against a stand-in for it
 * (cuda_stand_in.h): opening and giving back, deadlines, errors, spans, imports, the ledger.
 * Needs CUDA's headers, no GPU; says nothing about one. */
#include "tests/device/shared.h"

#ifdef HAVE_CUDA
#include "device/gpu_handle.h"
#include "tests/stand_ins/cuda_stand_in.h"

Test(cuda, opens_and_gives_everything_back, .timeout = 30) {
    stand_in_reset();
    struct device *d = open_one(0, 1);
    struct ledger ledger = device_ledger(d);
    cr_assert_str_eq(device_name(d), "cuda(0)");
    cr_assert_eq(device_layout(d), LAYOUT_PLAIN);
    cr_assert_eq(ledger.capacity, MEMORY);
    cr_assert_eq(ledger.total, CUDA_WORKSPACE_BYTES);
    cr_assert_eq(ledger.now[MEM_WORKSPACE], CUDA_WORKSPACE_BYTES);
    device_close(d);
    cr_assert_eq(stand_in_left(), 0);
}

Test(cuda, whatever_call_fails_at_opening_nothing_is_left, .timeout = 60) {
    struct device_config config = config_of(0, 1);
    struct device *d = NULL;
    int tried = 0;
    for (int k = 1; !d; k++) {
        stand_in_reset();
        gpu.fail_at = k;
        int code = device_open(&d, &config);
        if (gpu.fail_at > 0) break; /* opening makes fewer calls than k */
        if (!code) { /* some failures do not matter for opening: a fill of new memory */
            device_close(d), d = NULL;
        } else {
            cr_assert_null(d);
            cr_assert_gt(strlen(error_message()), 10u);
        }
        cr_assert_eq(stand_in_left(), 0, "call %d failed: %d things left: %s", k, stand_in_left(),
                     error_message());
        tried++;
    }
    device_close(d);
    cr_assert_gt(tried, 1000, "events for spans alone are as many");
}

Test(cuda, devices_above_the_gpus_share_them_round_robin, .timeout = 30) {
    stand_in_reset();
    gpu.count = 3;
    struct device *d[8];
    const int sharers[8] = {3, 3, 2, 3, 3, 2, 3, 3};
    for (int i = 0; i < 8; i++) {
        struct cuda_device *c = (struct cuda_device *)(d[i] = open_one(i, 8));
        cr_assert_eq(c->gpu, i % 3);
        cr_assert_eq(c->sharers, sharers[i], "device %d", i);
    }
    for (int i = 0; i < 8; i++)
        device_close(d[i]);
}

Test(cuda, the_default_share_leaves_room_for_those_who_share, .timeout = 30) {
    struct device_config config = config_of(1, 4);
    struct device *d;
    uint64_t mib = 1 << 20;
    stand_in_reset();
    gpu.total = 4096 * mib;
    config.memory_bytes = 0, config.check_operands = 0;
    MUST(device_open(&d, &config));
    uint64_t share = device_ledger(d).capacity;
    device_close(d);
    cr_assert_eq(share % (2 * mib), 0);
    cr_assert_leq(share, (4096 - 4 * 512) * mib / 4 * 8 / 10);
    cr_assert_gt(share, 400 * mib);
}

Test(cuda, out_of_memory_names_device_and_cause, .timeout = 30) {
    struct device_config config = config_of(3, 4);
    struct device *d;
    void *memory;
    stand_in_reset();
    gpu.malloc_error = cudaErrorMemoryAllocation;
    cr_assert_eq(device_open(&d, &config), ERR_MEMORY);
    MUST_SAY("out of memory on device 3");
    MUST_SAY("Stand-in");
    gpu.malloc_error = cudaSuccess;
    d = open_one(3, 4);
    cr_assert_eq(device_alloc(d, &memory, 17 << 20, MEM_ACTIVATIONS), ERR_MEMORY);
    MUST_SAY("out of memory on device 3: 17 MiB asked for activations");
    MUST_SAY("workspace 64 MiB");
    MUST(device_alloc(d, &memory, 16 << 20, MEM_ACTIVATIONS));
    cr_assert_eq(*(uint32_t *)memory, 0xffffffffu, "checked memory is NaN");
    gpu.malloc_error = cudaErrorMemoryAllocation;
    cr_assert_eq(device_host_alloc(d, &memory, 10), ERR_MEMORY);
    device_close(d);
    config.memory_bytes = 2 << 20;
    gpu.malloc_error = cudaSuccess;
    cr_assert_eq(device_open(&d, &config), ERR_MEMORY, "too small for the workspace");
    MUST_SAY("out of memory on device 3: 2 MiB for it on GPU 0 (Stand-in, 80 GiB for 4 devices), "
             "and the workspace of its kernels "
             "alone takes 64 MiB: open fewer devices");
    config.memory_bytes = 0, gpu.total = (uint64_t)2 << 30; /* less than the contexts take */
    cr_assert_eq(device_open(&d, &config), ERR_MEMORY);
    MUST_SAY("2 GiB for 4 devices");
    cr_assert_eq(stand_in_left(), 0);
}

Test(cuda, a_missing_driver_an_old_one_and_no_gpu_are_told_apart, .timeout = 30) {
    int n;
    stand_in_reset();
    gpu.count_error = cudaErrorInsufficientDriver, gpu.driver = 0;
    cr_assert_eq(device_probe(DEVICE_CUDA, &n), ERR_USAGE);
    MUST_SAY("no NVIDIA driver");
    gpu.driver = 11040;
    cr_assert_eq(device_probe(DEVICE_CUDA, &n), ERR_USAGE);
    MUST_SAY("the driver is for CUDA 11.4");
    gpu.count_error = cudaErrorNoDevice;
    cr_assert_eq(device_probe(DEVICE_CUDA, &n), ERR_USAGE);
    MUST_SAY("no GPU found");
    cr_assert_eq(n, 0);
    gpu.count_error = cudaSuccess, gpu.count = 2;
    MUST(device_probe(DEVICE_CUDA, &n));
    cr_assert_eq(n, 2);
}

Test(cuda, data_goes_there_and_back_and_is_charged, .timeout = 30) {
    stand_in_reset();
    gpu.count = 2;
    struct device *a = open_one(0, 3), *b = open_one(1, 3), *c = open_one(2, 3);
    float *x = test_floats(a, 4), *y = test_floats(b, 4), *z = test_floats(c, 4), seen[4];
    const float values[4] = {1, 2, 3, 4}, five = 5;
    struct stream *s = device_compute(a);
    MUST(copy_to_device(s, x, values, sizeof values));
    MUST(stream_write(s, x + 1, &five, sizeof five));
    MUST(test_scale(s, x, 4, 2));
    MUST(copy_peer(s, b, y, a, x, sizeof values));
    MUST(copy_peer(s, c, z, a, x, sizeof values));
    MUST(copy_peer(s, a, x, b, y, 4));
    MUST(copy_to_host(device_compute(b), seen, y, sizeof seen));
    MUST(stream_sync(device_compute(b)));
    cr_assert(seen[0] == 2 && seen[1] == 10 && seen[3] == 8);
    cr_assert_eq(z[1], 10);
    cr_assert_eq(gpu.pairs, 1, "peer access is asked for once");
    cr_assert_eq(device_traffic(a)->bytes[LINK_HOST][0], 20);
    cr_assert_eq(device_traffic(a)->bytes[0][1], 16);
    cr_assert_eq(device_traffic(a)->bytes[0][2], 16,
                 "another device on the same GPU is another device");
    cr_assert_eq(device_traffic(b)->bytes[1][LINK_HOST], 16);
    cr_assert_eq(copy_to_device(s, y, values, 16), ERR_FAILED, "a foreign operand");
    MUST(stream_sync(s));
    device_close(a), device_close(b), device_close(c);
}

Test(cuda, n16_is_refused_and_leaves_the_stream_as_it_was, .timeout = 30) {
    stand_in_reset();
    struct device *d = open_one(0, 1);
    const int dims[2] = {16, 3};
    struct op_args args;
    memset(&args, 0, sizeof args);
    args.out[0] = tensor_plain(test_floats(d, 48), DTYPE_F32, 2, dims);
    args.out[0].layout = LAYOUT_N16;
    args.out[0].groups = 1;
    cr_assert_eq(launch(device_compute(d), OP_FILL, &args), ERR_FAILED);
    MUST_SAY("N16");
    MUST(stream_sync(device_compute(d)));
    device_close(d);
}

/* ---- spans ---- */

Test(cuda, spans_are_as_long_as_the_work_and_on_the_hosts_axis, .timeout = 30) {
    stand_in_reset();
    struct device *d = open_one(0, 1);
    struct stream *s = device_compute(d);
    float *x = test_floats(d, 4);
    int64_t before = now_ns();
    gpu.work_ns = 3000000;
    stream_set_phase(s, PHASE_FORWARD, 7);
    MUST(test_fill(s, x, 4, 1));
    MUST(test_fill(s, x, 4, 2));
    cr_assert_eq(stream_spans(s)->count, 0, "read later");
    MUST(stream_sync(s));
    int64_t after = now_ns(),
            slack = ((struct cuda_device *)d)->compute.spans.clock.window_ns + 1000;
    const struct span *spans = stream_spans(s)->spans;
    cr_assert_eq(stream_spans(s)->count, 2);
    for (int i = 0; i < 2; i++) {
        cr_assert_str_eq(spans[i].name, "fill");
        cr_assert(spans[i].phase == PHASE_FORWARD && spans[i].step == 7 && !spans[i].waiting);
        int64_t length = spans[i].end_ns - spans[i].start_ns;
        /* below: the float's step; above: a busy machine stops between the event and the work,
         * but not for a second */
        cr_assert(length > 2999000 && length < 1000000000, "%lld ns", (long long)length);
    }
    cr_assert_geq(spans[0].start_ns, before - slack);
    cr_assert_leq(spans[1].end_ns, after + slack);
    cr_assert_geq(spans[1].start_ns, spans[0].end_ns);
    device_close(d);
}

Test(cuda, a_wait_is_a_span_only_if_it_blocked, .timeout = 30) {
    stand_in_reset();
    struct device *d = open_one(0, 1);
    struct event *event;
    float *x = test_floats(d, 4);
    MUST(event_create(d, &event));
    /* however long a busy machine stops this thread: no wait looks longer, no work is done
     * before */
    gpu.still_ns = now_ns();
    MUST(stream_wait(device_comm(d), event));
    gpu.work_ns = 5000000;
    MUST(test_fill(device_compute(d), x, 4, 1));
    MUST(event_record(event, device_compute(d)));
    cr_assert_eq(event_done(event), 0);
    MUST(stream_wait(device_comm(d), event));
    gpu.still_ns = 0;
    MUST(stream_sync(device_comm(d)));
    cr_assert_eq(event_done(event), 1);
    MUST(event_sync(event));
    cr_assert_eq(stream_spans(device_comm(d))->count, 1);
    cr_assert_eq(stream_spans(device_comm(d))->spans[0].waiting, 1);
    event_destroy(event);
    device_close(d);
    cr_assert_eq(stand_in_left(), 0);
}

Test(cuda, thousands_of_open_spans_come_in_order_and_none_is_lost, .timeout = 60) {
    stand_in_reset();
    struct device *d = open_one(0, 1);
    struct stream *s = device_compute(d);
    float *x = test_floats(d, 4);
    /* slower than they are enqueued: the ring grows; over 256 ms: the anchor moves */
    gpu.work_ns = 200000;
    for (int i = 0; i < 3000; i++) {
        stream_set_phase(s, PHASE_BACKWARD, i);
        MUST(test_fill(s, x, 4, 1));
    }
    MUST(stream_sync(s));
    const struct span *spans = stream_spans(s)->spans;
    cr_assert_eq(stream_spans(s)->count, 3000);
    for (int i = 0; i < 3000; i++) {
        cr_assert_eq(spans[i].step, i);
        cr_assert(i == 0 || spans[i].start_ns >= spans[i - 1].end_ns);
    }
    int64_t whole = spans[2999].end_ns - spans[0].start_ns;
    cr_assert(whole > 599900000, "%lld ns for 3000 times 200 us", (long long)whole);
    device_close(d);
    cr_assert_eq(stand_in_left(), 0);
}

/* ---- errors and deadlines ---- */

Test(cuda, a_fault_stays_names_op_and_step_and_travels_by_events, .timeout = 30) {
    stand_in_reset();
    struct device *d = open_one(0, 1);
    struct stream *s = device_compute(d);
    struct event *event;
    char text[CUDA_ERROR_TEXT];
    float *x = test_floats(d, 4);
    MUST(event_create(d, &event));
    stream_set_phase(s, PHASE_FORWARD, 12);
    MUST(test_fill(s, x, 4, 1));
    gpu.fault = cudaErrorIllegalAddress;
    cr_assert_eq(stream_sync(s), ERR_FAILED);
    MUST_SAY("fill of step 12");
    MUST_SAY("cudaErrorIllegalAddress");
    snprintf(text, sizeof text, "%s", error_message());
    gpu.fault = cudaSuccess; /* were it to heal, the stream would not */
    cr_assert_eq(test_fill(s, x, 4, 3), ERR_FAILED);
    cr_assert_str_eq(error_message(), text);
    cr_assert_neq(x[0], 3);
    cr_assert_eq(event_record(event, s), ERR_FAILED);
    cr_assert_eq(event_done(event), 1);
    cr_assert_eq(event_sync(event), ERR_FAILED);
    cr_assert_str_eq(error_message(), text);
    cr_assert_eq(stream_wait(device_comm(d), event), ERR_FAILED);
    cr_assert_eq(stream_sync(device_comm(d)), ERR_FAILED);
    cr_assert_str_eq(error_message(), text);
    event_destroy(event);
    device_close(d);
    cr_assert_eq(stand_in_left(), 0);
}

/* Who syncs an event may be the first to see a fault: it knows what the event was recorded
 * behind, and no more. */
Test(cuda, a_fault_first_seen_by_an_event_names_what_it_was_recorded_behind, .timeout = 30) {
    stand_in_reset();
    struct device *d = open_one(0, 1);
    struct stream *s = device_compute(d);
    struct event *event;
    float *x = test_floats(d, 4), value = 2;
    MUST(event_create(d, &event));
    stream_set_phase(s, PHASE_FORWARD, 12);
    MUST(test_fill(s, x, 4, 1));
    MUST(event_record(event, s));
    stream_set_phase(s, PHASE_FORWARD, 13);
    MUST(stream_write(s, x, &value, sizeof value));
    gpu.fault = cudaErrorIllegalAddress;
    cr_assert_eq(event_sync(event), ERR_FAILED);
    MUST_SAY("event sync on cuda(0): cudaErrorIllegalAddress");
    MUST_SAY("up to fill of step 12;");
    gpu.fault = cudaSuccess;
    event_destroy(event);
    device_close(d);
    cr_assert_eq(stand_in_left(), 0);
}

Test(cuda, a_broken_context_is_closed_without_a_hang, .timeout = 30) {
    stand_in_reset();
    struct device *d = open_one(0, 1);
    gpu.fault = cudaErrorIllegalAddress;
    cr_assert_neq(test_fill(device_compute(d), test_floats(d, 4), 4, 1), OK);
    device_close(d);
    cr_assert_eq(gpu.streams + gpu.math, 0);
}

Test(cuda, work_that_never_ends_meets_the_deadline, .timeout = 30) {
    stand_in_reset();
    struct device_config config = config_of(0, 1);
    struct device *d;
    struct event *event;
    config.timeout_s = 0.2;
    MUST(device_open(&d, &config));
    MUST(event_create(d, &event));
    float *x = test_floats(d, 4);
    gpu.work_ns = NEVER;
    MUST(test_fill(device_comm(d), x, 4, 1));
    MUST(event_record(event, device_comm(d)));
    cr_assert_eq(stream_sync(device_comm(d)), ERR_TIMEOUT);
    MUST_SAY("stream comm of cuda(0)");
    cr_assert_eq(event_sync(event), ERR_TIMEOUT);
    cr_assert_eq(event_record(event, device_compute(d)), ERR_FAILED,
                 "still on its way on the other stream");
    MUST(stream_sync(device_compute(d)));
    event_destroy(event);
    device_close(d);
    cr_assert_eq(stand_in_left(), 1,
                 "the slab alone: giving back what a kernel still uses would hang");
}

/* ---- IPC ---- */

Test(cuda, a_slab_is_opened_once_and_closed_with_its_last_piece, .timeout = 30) {
    stand_in_reset();
    struct device *d = open_one(0, 2), *e = open_one(1, 2);
    float *x = test_floats(d, 4), *y = test_floats(d, 100);
    struct memory_handle hx, hy;
    void *seen[3];
    int fd;
    MUST(device_export(d, x, &hx, &fd));
    cr_assert_eq(fd, -1);
    MUST(device_export(d, y + 1, &hy, &fd));
    cr_assert(gpu_handles_share(&hx, &hy));
    MUST(device_import(e, &hx, -1, &seen[0]));
    cr_assert(seen[0] == (void *)x && gpu.opens == 0,
              "this process's own memory is reached directly");
    device_unimport(e, seen[0]);
    hx.pid = hy.pid = 1; /* as from another process */
    MUST(device_import(e, &hx, -1, &seen[0]));
    MUST(device_import(e, &hy, -1, &seen[1]));
    MUST(device_import(e, &hx, -1, &seen[2]));
    cr_assert(seen[0] == (void *)x && seen[1] == (void *)(y + 1));
    cr_assert_eq(gpu.opens, 1);
    float *z = test_floats(e, 2);
    x[0] = 17;
    MUST(copy_imported(device_comm(e), z, seen[0], hx.device, 4));
    MUST(stream_sync(device_comm(e)));
    cr_assert(z[0] == 17 && isnan(z[1]));
    cr_assert_eq(device_traffic(e)->bytes[0][1], 4);
    cr_assert_eq(traffic_into(device_traffic(e), 1), 4);
    device_unimport(e, seen[0]);
    char *slab = ((struct cuda_device *)d)->slab;
    /* in no mapping of e's */
    device_unimport(e, slab - 1), device_unimport(e, slab + device_ledger(d).capacity);
    device_unimport(e, seen[1]);
    cr_assert_eq(gpu.opened, 1);
    gpu.close_error = cudaErrorInvalidValue;
    device_unimport(e, seen[2]);
    cr_assert(gpu.opened == 0 && gpu.last == cudaSuccess,
              "an error is left for the next launch to find");
    gpu.close_error = cudaSuccess;
    MUST(device_import(e, &hx, -1, &seen[0])); /* left for close */
    gpu.ipc_error = cudaErrorInvalidResourceHandle;
    hx.bytes[20] ^= 1; /* of another slab */
    cr_assert_eq(device_import(e, &hx, -1, &seen[1]), ERR_FAILED);
    MUST_SAY("import of memory of device 0, process 1, on cuda(1)");
    cr_assert_null(seen[1]);
    device_close(e), device_close(d);
    cr_assert_eq(stand_in_left(), 0);
}
#else
Test(cuda, needs_the_headers_of_cuda, .timeout = 10) {
    cr_skip_test("no CUDA here: the files under test are not built");
}
#endif
