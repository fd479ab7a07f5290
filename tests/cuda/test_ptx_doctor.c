/* The doctor's table on nvcc's own code: every operation, and its training steps, from PTX and from
 * the kernels' text compiled as C++. What a launch writes is the same to the bit, and what it
 * accesses lies within its operands to the byte. exp and log are the only functions of which a GPU
 * has its own versions, so operations with them are exempt: there the doctor's bound holds.
 *
 * Collectives are compared with a reference on the host that has the bits of the text, so they run
 * from PTX alone: here by ranks with a GPU each, and by ranks that share one and as blocks of one
 * grid in doctor/test_cuda, which runs the whole command from PTX. */
#include "tests/harness/harness.h"

#ifndef CUDA_EMULATION
Test(ptx_doctor, needs_the_emulated_runtime) {
    cr_skip_test("make EMULATION=1 builds with it: docs/cuda.md");
}
#else
#include <math.h>
#include <unistd.h>

#include "device/cuda/cuda.h"
#include "doctor/ops.h"
#include "tests/cuda/ptx_ran.h"
#include "tests/doctor/shared.h"
#include "tests/stand_ins/cuda_emulation/use_ptx.h"

/* ---- what launches write, in memory that the processes of a check share ---- */

struct written {
    uint64_t hash[OP_COUNT]; /* of all outputs of an op, in the order of its launches */
    unsigned long launches[OP_COUNT];
};
static struct written *written;

static void add(uint64_t *hash, uint64_t bits) {
    *hash = (*hash ^ bits) * 0x100000001b3 + (bits >> 29); /* after FNV-1a */
}

/* Every NaN counts as one: a GPU has a single one, a CPU keeps the sign and payload of an input. */
static void add_values(uint64_t *hash, const struct tensor *t) {
    for (size_t i = 0, count = tensor_count(t), bytes = dtype_bytes(t->dtype); i < count; i++) {
        uint64_t bits = 0;
        memcpy(&bits, (const char *)t->data + i * bytes, bytes);
        if (t->dtype == DTYPE_F32 && isnan(tensor_f32(t)[i])) bits = UINT64_MAX;
        if (t->dtype == DTYPE_F64 && isnan(((const double *)t->data)[i])) bits = UINT64_MAX;
        add(hash, bits);
    }
}

/* What a kernel of an op may access: its operands to the byte, and the workspace. */
static int operand_ranges(struct stream *s, const struct op_args *a,
                          struct ptx_range ranges[OPERANDS + 2]) {
    int count = 0;
    uintptr_t workspace = (uintptr_t)((struct cuda_stream *)s)->workspace,
              step = (uintptr_t)a->step;
    for (int i = 0; i < OPERANDS; i++) {
        const struct tensor *t = i < INPUTS ? &a->in[i] : &a->out[i - INPUTS];
        uintptr_t from = (uintptr_t)t->data;
        if (from) ranges[count++] = (struct ptx_range){from, from + tensor_bytes(t)};
    }
    if (step) ranges[count++] = (struct ptx_range){step, step + sizeof *a->step};
    ranges[count++] = (struct ptx_range){workspace, workspace + CUDA_WORKSPACE_BYTES};
    return count;
}

static int products_by_text; /* 1: there is no PTX of convolutions and linear layers */

static int launch_within(struct stream *stream, enum op op, const struct op_args *args) {
    struct ptx_range ranges[OPERANDS + 2];
    CHECK(stream_sync(stream));
    emulated_ptx_only(ranges, operand_ranges(stream, args, ranges));
    int code = correct->launch(stream, op, args);
    if (!code) code = stream_sync(stream);
    emulated_ptx_only(NULL, 0);
    return code;
}

/* The host can read a GPU's memory here. */
static int launch_and_look(struct stream *stream, enum op op, const struct op_args *args) {
    int by_text = products_by_text && op <= OP_LINEAR_BACKWARD_WEIGHT;
    if (by_text) emulated_ptx_pause(1);
    CHECK(launch_within(stream, op, args));
    if (by_text) emulated_ptx_pause(0);
    for (int i = 0; i < 2; i++)
        if (args->out[i].data) add_values(&written->hash[op], &args->out[i]);
    written->launches[op]++;
    return OK;
}

static void plant_looks(struct device_ops *ops) {
    ops->launch = launch_and_look;
}

/* ---- one check, from PTX or from the text ---- */

static struct findings *examine_by(doctor_check *check, const char *ptx, int gpus, int looks) {
    struct doctor_config config = faulty_config();
    char count[8];
    snprintf(count, sizeof count, "%d", gpus);
    setenv("EMULATED_PTX", ptx, 1);
    setenv("EMULATED_GPUS", count, 1);
    setenv("DUET_NCCL", "/nowhere", 1);
    config.target = DOCTOR_CUDA;
    plant = looks ? plant_looks : NULL;
    memset(written, 0, sizeof *written);
    struct findings *f = examine_on(check, &config, gpus);
    only_off(f, "");
    return f;
}

static void begin(void) {
    if (access(PTX_FOLDER, R_OK)) cr_skip_test("no nvcc here: there is no PTX");
    written =
        mmap(NULL, sizeof *written, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(written, MAP_FAILED);
}

/* Returns how many ops were launched. */
static int same_bits_of(doctor_check *check, const char *folder) {
    findings_free(examine_by(check, "0", 1, 1));
    const struct written by_text = *written;
    int ops = 0;
    findings_free(examine_by(check, folder, 1, 1));
    for (int op = 0; op < OP_COUNT; op++) {
        cr_expect_eq(written->launches[op], by_text.launches[op], "%s", op_name((enum op)op));
        cr_expect(written->hash[op] == by_text.hash[op] ||
                      op_tolerance((enum op)op, 0)->judge == JUDGE_SOFTMAX,
                  "%s: other bits in %lu launches", op_name((enum op)op), written->launches[op]);
        ops += written->launches[op] > 0;
    }
    return ops;
}

static void collectives(void) {
    struct findings *f = examine_by(check_allreduce, PTX_FOLDER, 4, 0);
    int equal = 0;
    for (int i = 0; i < f->count; i++)
        equal += !strncmp(f->row[i].measured, "spin", 4) && strstr(f->row[i].measured, ": equal; ");
    cr_expect_eq(equal, 12, "six algorithms by 2 and 4 ranks: %d of %d rows", equal, f->count);
    findings_free(f);
}

/* ---- which kernels ran ---- */

static char ran_path[] = "/tmp/duet-ptx-XXXXXX";

static int has_run(const char *name) {
    char line[220];
    int found = 0;
    FILE *ran = fopen(ran_path, "r");
    cr_assert_not_null(ran);
    while (!found && fgets(line, sizeof line, ran)) {
        line[strcspn(line, "\n")] = 0;
        found = !strcmp(line, name);
    }
    fclose(ran);
    return found;
}

Test(ptx_doctor, every_operation_and_collective_of_its_table, .timeout = 120) {
    begin();
    cr_assert_geq(mkstemp(ran_path), 0);
    setenv("EMULATED_PTX_LOG", ran_path, 1);
    cr_expect_eq(same_bits_of(check_ops, PTX_FOLDER), OP_COUNT - 2,
                 "all but the two that change the layout");
    collectives();
    /* of products each shape chooses some: test_ptx_tiles.c runs all of them */
    cr_expect_gt(expect_all_ran(0, has_run), 60);
    unlink(ran_path);
}

/* What nvcc makes for GPUs before Hopper. Convolutions and linear layers take long to compile: they
 * are run if somebody has made them (make EMULATION=1 ptx-80). */
Test(ptx_doctor, every_operation_of_older_gpus, .timeout = 120) {
    begin();
    setenv("EMULATED_CAPABILITY", "80", 1);
    products_by_text = access(PTX_FOLDER "/80/product.ptx", R_OK) != 0;
    cr_expect_eq(same_bits_of(check_ops, PTX_FOLDER "/80"), OP_COUNT - 2);
}

Test(ptx_doctor, its_training_steps, .timeout = 120) {
    if (test_short()) cr_skip_test("short form: ptx_train has a step of each model");
    begin();
    cr_expect_gt(same_bits_of(check_step, PTX_FOLDER), 15);
}
#endif
