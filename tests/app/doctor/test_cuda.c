/* Tests the doctor on emulated GPUs: correct ones pass. Each failure that the emulation can produce
 * is found and reported with CUDA's error text, while unaffected checks continue. Without the
 * emulation one test remains. */
#include "tests/app/cli/json.h"
#include "tests/app/cli/run.h"
#include "tests/app/doctor/shared.h"

#ifdef CUDA_EMULATION

#include "tests/cuda/library.h"

static struct findings *examine_gpus(doctor_check *check, int gpus, double timeout) {
    struct doctor_config config = faulty_config();
    char count[8];
    snprintf(count, sizeof count, "%d", gpus);
    setenv("EMULATED_GPUS", count, 1);
    config.target = DOCTOR_CUDA;
    config.open_device = device_open; /* correct devices; ranks are started only by fork */
    config.timeout = timeout;
    return examine_on(check, &config, gpus);
}

static void without_libraries(void) {
    setenv("DUET_CUBLAS", "/nowhere/libcublas.so", 1);
    setenv("DUET_NCCL", "/nowhere/libnccl.so", 1); /* the real one finds no GPU */
}

static void fault(const char *list) {
    without_libraries();
    setenv("EMULATED_CUDA_FAULT", list, 1);
}

static void skip_where_short(void) {
    if (test_short())
        cr_skip_test(
            "tests/check_cuda_emulation.sh \"\" doctor/test_cuda runs it, in a minute or two");
}

/* ---- the command ---- */

static void passes(int gpus, const char *rows) {
    struct cli c;
    char count[8], list[600];
    snprintf(count, sizeof count, "%d", gpus);
    setenv("EMULATED_GPUS", count, 1);
    cli_run(&c, "doctor --device cuda --quick --details --timeout 110 --json found.json");
    cr_assert(c.status == 0 && !*c.err && matches(c.out, " ok, 0 off, "), "status %d: %s%s",
              c.status, c.out, c.err);
    snprintf(list, sizeof list, "%s", rows);
    for (char *save, *row = strtok_r(list, "|", &save); row; row = strtok_r(NULL, "|", &save)) {
        char line[200];
        snprintf(line, sizeof line, "^%s +ok ", row);
        cr_expect(matches(c.out, line), "%s: %s", row, c.out);
    }
    char *all = unbroken(c.out);
    cr_expect(strstr(all, "emulated GPU (no hardware), compute capability"), "%s", c.out);
    free(all);
    cr_expect(!matches(c.out, "^cpu"), "GPUs alone were asked for");
    cli_free(&c);
}

static const char every_check[] = "driver|GPUs|cuda.0.: device|cuda.0. -> cuda.1.|cuda.1. -> "
                                  "cuda.0.|cuda: conv2d forward|cuda: hash|cuda: allreduce ring, 4 "
                                  "ranks|cuda: step of lenet|cuda: convnet in two segments";

CliTest(doctor_cuda, one_gpu_passes, 300) {
    without_libraries();
    passes(1, every_check);
}

CliTest(doctor_cuda, two_gpus_pass, 300) {
    skip_where_short();
    without_libraries();
    passes(2, every_check);
}

/* The first kernel of every process faults: exit status 3, and checks without a kernel go on. */
CliTest(doctor_cuda, a_fault_is_status_3, 300) {
    skip_where_short();
    struct cli c;
    fault("launch:1");
    cli_run(&c, "doctor --device cuda --quick --details --timeout 20");
    cr_expect_eq(c.status, 3, "%s", c.out);
    char *all = unbroken(c.out);
    cr_expect(matches(all, "^cuda: add forward +off +.*cudaErrorIllegalAddress") &&
                  matches(all, "^cuda: step of convnet +off +.*cudaErrorIllegalAddress") &&
                  matches(all, "^cuda.0. -> cuda.1. +ok"),
              "%s", c.out);
    free(all);
    cr_expect(matches(c.err, "^duet: doctor: [0-9]+ of [0-9]+ checks failed: the first is "), "%s",
              c.err);
    cli_free(&c);
}

CliTest(doctor_cuda, no_driver_and_an_old_one, 120) {
    static const char *const faults[] = {"driver:none", "driver:old"},
                             *const words[] = {"no NVIDIA driver", "the driver is for CUDA 11.4"};
    for (int i = 0; i < 2; i++) {
        struct cli c;
        fault(faults[i]);
        cli_run(&c, "doctor --device cuda --quick");
        cr_expect(c.status == 3 && strstr(c.err, "1 of ") && strstr(c.err, words[i]), "%s: %s",
                  faults[i], c.err);
        cli_free(&c);
    }
}

/* ---- one check at a time ---- */

Test(doctor_cuda, products_by_libraries, .timeout = 280) {
    use_fakes();
    struct findings *f = examine_gpus(check_ops, 1, 100);
    only_off(f, "");
    cr_expect_eq((int)row_of(f, "cuda, libraries: linear backward weight")->state, (int)FINDING_OK);
    findings_free(f);
}

/* GPUs that cannot access each other's memory: copies go through host memory and are right. */
Test(doctor_cuda, no_peer_access, .timeout = 100) {
    without_libraries();
    setenv("EMULATED_PEER", "0", 1);
    struct findings *f = examine_gpus(check_peers, 2, 60);
    only_off(f, "");
    cr_expect(strstr(row_of(f, "cuda(1) -> cuda(0)")->measured, "through host memory"));
    findings_free(f);
}

/* P2P that is advertised and moves no bytes is off, in words that say what to do. */
Test(doctor_cuda, broken_peer_access, .timeout = 100) {
    without_libraries();
    setenv("EMULATED_P2P", "lost", 1);
    struct findings *f = examine_gpus(check_peers, 2, 60);
    const struct finding *row = row_of(f, "cuda(1) -> cuda(0)");
    cr_expect(row->state == FINDING_OFF && strstr(row->measured, "P2P is advertised") &&
                  strstr(row->measured, "iommu=pt, or set NCCL_P2P_DISABLE=1"),
              "%s", row->measured);
    findings_free(f);
    setenv("NCCL_P2P_DISABLE", "1", 1); /* the workaround */
    f = examine_gpus(check_peers, 2, 60);
    only_off(f, "");
    findings_free(f);
}

/* The second kernel of every process faults: every operation is off, each in a process of its
 * own. */
Test(doctor_cuda, every_op_faults, .timeout = 280) {
    fault("launch:2");
    struct findings *f = examine_gpus(check_ops, 1, 60);
    for (int op = OP_CONV2D_FORWARD; op < OP_COUNT; op++) {
        char name[CHECK_NAME_BYTES];
        snprintf(name, sizeof name, "cuda: %s", op_name((enum op)op));
        const struct finding *row = row_of(f, name);
        cr_expect(row->state == FINDING_OFF && strstr(row->measured, "cudaErrorIllegalAddress"),
                  "%s: %s", name, row->measured);
    }
    findings_free(f);
}

/* Kernels are chosen by the number of samples too: a kernel that is wrong only for batches as large
 * as those of training is found. */
static int wrong_when_large(struct stream *stream, enum op op, const struct op_args *args) {
    struct op_args less = *args;
    if (op == OP_CONV2D_FORWARD && args->in[0].dims[0] >= 200) less.in[2].data = NULL; /* no bias */
    if (op == OP_LINEAR_BACKWARD_WEIGHT && args->in[0].dims[0] >= 200) /* a sample is missing */
        less.in[0].dims[0]--, less.in[1].dims[0]--;
    return correct->launch(stream, op, &less);
}

static void plant_wrong_when_large(struct device_ops *ops) {
    ops->launch = wrong_when_large;
}

Test(doctor_cuda, products_of_large_batches, .timeout = 280) {
    if (test_short()) cr_skip_test("short form: batches of training take long here");
    struct doctor_config config = faulty_config();
    without_libraries();
    setenv("EMULATED_GPUS", "1", 1);
    config.target = DOCTOR_CUDA;
    config.quick = 0;
    plant = plant_wrong_when_large;
    struct findings *f = examine_on(check_ops, &config, 1);
    only_off(f, "cuda: conv2d forward|cuda: linear backward weight");
    findings_free(f);
}

Test(doctor_cuda, a_kernel_that_never_ends, .timeout = 200) {
    skip_where_short();
    fault("hang:3");
    struct findings *f = examine_gpus(check_step, 1, test_short() ? 20 : 6);
    only_off(f, "cuda: step of lenet|cuda: step of convnet|cuda: step of complex");
    cr_expect(strstr(f->row[0].measured, "after") ||
                  strstr(f->row[0].measured, "did not finish within"),
              "%s", f->row[0].measured);
    findings_free(f);
}

/* The fourth kernel of rank 1 faults while the other ranks wait for it. */
Test(doctor_cuda, a_fault_of_one_rank, .timeout = 280) {
    fault("launch:4@1");
    struct findings *f = examine_gpus(check_allreduce, 1, 40);
    cr_expect_gt(findings_count(f, FINDING_OFF), 4);
    for (int i = 0; i < f->count; i++)
        cr_expect(f->row[i].state != FINDING_OFF || strstr(f->row[i].measured, "rank 1"), "%s: %s",
                  f->row[i].check, f->row[i].measured);
    findings_free(f);
}

/* Every GPU operation is late, or the host cannot access device memory: correct devices still pass,
 * so the checks do not depend on an early completion or on a read by the host. */
Test(doctor_cuda, late_and_guarded, .timeout = 280) {
    skip_where_short();
    doctor_check *const checks[] = {check_peers, check_step, check_ops};
    for (int guarded = 0; guarded < 2; guarded++) {
        without_libraries();
        setenv("EMULATED_CUDA_LATE_US", guarded ? "0" : "200", 1);
        setenv("EMULATED_CUDA_GUARD", guarded ? "1" : "0", 1);
        for (int i = 0; i < 3; i++) {
            struct findings *f = examine_gpus(checks[i], 2, 100);
            only_off(f, "");
            findings_free(f);
        }
    }
}

#else

/* The checks of GPUs where there is none. The command does not reach them; called one by one they
 * are refused. */
Test(doctor_cuda, not_built_in_or_not_here, .timeout = 60) {
    struct doctor_config config = faulty_config();
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    config.open_device = NULL;
    struct findings *f = examine_on(check_peers, &config, 1);
    const struct finding *row = row_of(f, "cuda: peers");
    cr_expect(row->state == FINDING_OFF && strstr(row->measured, "use --device cpu"), "%s",
              row->measured);
    findings_free(f);
}

#endif
