/* The interpreter of PTX, tests/stand_ins/ptx: it knows every instruction of every kernel that nvcc
 * makes, names what it does not know, and finds what a GPU would fault, hang or race at. The
 * kernels here are written by hand; test_ptx_doctor.c and test_ptx_tiles.c run
 * those of nvcc. */
#include "tests/harness/harness.h"

#ifndef CUDA_EMULATION
Test(ptx, needs_the_emulated_runtime) {
    cr_skip_test("make EMULATION=1 builds with it: docs/cuda.md");
}
#else
#include <string.h>
#include <sys/stat.h>

#include "tests/stand_ins/ptx/library.h"
#include "tests/stand_ins/ptx/machine.h"

Test(ptx, knows_every_instruction_of_every_kernel, .timeout = 60) {
    struct ptx_library library;
    struct ptx_error error = {""};
    struct stat folder;
    int kernels = 0;
    if (stat(PTX_FOLDER, &folder)) cr_skip_test("no nvcc here: there is no PTX");
    cr_assert(ptx_library_open(&library, PTX_FOLDER, &error), "%s", error.text);
    for (int i = 0; i < library.file_count; i++)
        for (int k = 0; k < library.files[i].function_count; k++) {
            const struct ptx_function *f = &library.files[i].functions[k];
            if (!f->is_kernel) continue;
            struct ptx_program *p = ptx_program_make(f, &error);
            cr_expect(p != NULL, "%s", error.text);
            ptx_program_free(p);
            error.text[0] = 0;
            kernels++;
        }
    cr_expect(kernels > 80, "only %d kernels", kernels);
    cr_expect(ptx_library_find(&library, "product<0,3>") && ptx_library_find(&library, "fill") &&
              !ptx_library_find(&library, "product"));
    ptx_library_close(&library);
}

/* ---- kernels written by hand ---- */

/* A kernel whose parameter is two addresses, %rd1 to be read and %rd2 to be written; %r1 is the
 * thread, and %rd3 and %rd4 are the addresses of its own 4 bytes. */
#define HEAD                                                                           \
    ".version 9.0\n.target sm_90\n.address_size 64\n"                                  \
    ".entry k(.param .align 8 .b8 p[16])\n.maxntid 64, 1, 1\n{\n"                      \
    ".reg .pred %p<4>; .reg .b16 %rs<4>; .reg .b32 %r<20>; .reg .f32 %f<8>;\n"         \
    ".reg .b64 %rd<10>; .reg .f64 %fd<4>;\n.shared .align 16 .b8 s[1024];\n"           \
    "ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [p+8]; mov.u32 %r1, %tid.x;\n"         \
    "mul.wide.u32 %rd5, %r1, 4; add.s64 %rd3, %rd1, %rd5; add.s64 %rd4, %rd2, %rd5;\n" \
    "shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.s32 %r3, %r3, %r2;\n"
#define TAIL "ret;\n}\n"

struct tried {
    struct ptx_error error; /* of making the program */
    struct ptx_fault fault; /* of running it */
    uint32_t in[64], apart[16], out[64];
};

/* Runs HEAD, `text` and TAIL with a block of `threads`; in[i] = 100 + i. */
static void try(struct tried *t, const char *text, uint32_t threads) {
    char all[8192];
    struct ptx_file file;
    *t = (struct tried){.error = {""}};
    for (uint32_t i = 0; i < 64; i++)
        t->in[i] = 100 + i;
    snprintf(all, sizeof all, "%s%s%s", HEAD, text, TAIL);
    char *kept = strdup(all);
    if (!ptx_file_of(&file, "k.ptx", kept, strlen(kept), &t->error)) return;
    struct ptx_program *p = ptx_program_make(&file.functions[0], &t->error);
    if (p) {
        const void *param[2] = {t->in, t->out};
        const struct ptx_range ranges[2] = {{(uintptr_t)t->in, (uintptr_t)(t->in + 64)},
                                            {(uintptr_t)t->out, (uintptr_t)(t->out + 64)}};
        const struct ptx_grid grid = {p, param, {1, 1, 1}, {threads, 1, 1}, ranges, 2, 0};
        struct ptx_machine *m = ptx_machine_new(&grid);
        ptx_run_block(m, (const uint32_t[3]){0, 0, 0}, &t->fault);
        ptx_machine_free(m);
    }
    ptx_program_free(p);
    ptx_file_close(&file);
}

static void expect_error(const char *text, const char *says) {
    struct tried t;
    try(&t, text, 32);
    cr_expect(strstr(t.error.text, says), "%s: '%s' does not say '%s'", text, t.error.text, says);
}

Test(ptx, names_what_it_does_not_know) {
    expect_error("brev.b32 %r4, %r1;\n", "brev.b32: this opcode is not known");
    expect_error("add.f32 %f1, %f1, %f2;\n", "add.f32: this opcode is not known");
    expect_error("ld.weak.global.u32 %r4, [%rd3];\n", "ld.weak.global.u32: this form");
    expect_error("atom.global.exch.b32 %r4, [%rd3], %r1;\n", "atom.global.exch.b32: this form");
    expect_error("bar.sync 1;\n", "a barrier other than 0");
    expect_error("mov.u32 %r4, %laneid;\n", "%laneid is not known");
    expect_error("add.s32 %r4, %r1, %rd1;\n", "%rd1 has 64 bits, not 32");
    expect_error("add.s64 %rd4, %rd1, %r1;\n", "%r1 has 32 bits, not 64");
    expect_error("ld.global.u64 %r4, [%rd3];\n", "%r4 has 32 bits, not 64");
    expect_error("st.global.u32 [%rd4], %rd1;\n", "another width");
    expect_error("ld.global.v2.u32 {%r4}, [%rd3];\n", "a wrong number of registers");
    expect_error("mov.f32 %f1, 0d3FF0000000000000;\n", "a number of a wrong width");
    expect_error("bra $nowhere;\n", "a label that is not there");
    expect_error("add.s32 %r4, %r1, %r20;\n", "%r20 is not known");
    expect_error("ld.shared.u32 %r4, [p];\n", "a variable of another space");
    expect_error(".reg .b32 %p<4>;\n", "declared in two ways");
}

static void expect_out(const char *text, uint32_t threads, uint32_t (*want)(uint32_t)) {
    struct tried t;
    try(&t, text, threads);
    cr_assert(!*t.error.text && !t.fault.kind, "%s: %s%s", text, t.error.text, t.fault.text);
    for (uint32_t i = 0; i < threads; i++)
        cr_assert_eq(t.out[i], want(i), "%s: out[%u] is %u, not %u", text, i, t.out[i], want(i));
}

/* How often 3 i + 1 or i / 2 leads to 1. */
static uint32_t collatz(uint32_t i) {
    uint32_t steps = 0;
    for (uint32_t n = i + 1; n != 1; steps++)
        n = n % 2 ? 3 * n + 1 : n / 2;
    return steps;
}

static uint32_t mirrored(uint32_t i) {
    return 100 + 63 - i;
}

Test(ptx, lanes_part_and_meet_again) {
    expect_out("add.s32 %r4, %r1, 1; mov.u32 %r5, 0;\n"
               "$again: setp.eq.s32 %p1, %r4, 1; @%p1 bra $done;\n"
               "and.b32 %r6, %r4, 1; setp.eq.s32 %p2, %r6, 0; @%p2 bra $even;\n"
               "mad.lo.s32 %r4, %r4, 3, 1; bra.uni $next;\n"
               "$even: shr.u32 %r4, %r4, 1;\n"
               "$next: add.s32 %r5, %r5, 1; bra.uni $again;\n"
               "$done: st.global.u32 [%rd4], %r5;\n",
               50, collatz);
}

Test(ptx, threads_exchange_through_shared_memory) {
    expect_out("ld.global.u32 %r4, [%rd3]; st.shared.u32 [%r3], %r4; bar.sync 0;\n"
               "mov.u32 %r5, s; sub.s32 %r6, 63, %r1; shl.b32 %r6, %r6, 2;\n"
               "add.s32 %r5, %r5, %r6; ld.shared.u32 %r7, [%r5]; st.global.u32 [%rd4], %r7;\n",
               64, mirrored);
    expect_out("sub.s32 %r5, 63, %r1; mul.wide.u32 %rd6, %r5, 4; add.s64 %rd6, %rd1, %rd6;\n"
               "cp.async.ca.shared.global [%r3], [%rd6], 4; cp.async.wait_all;\n"
               "ld.shared.u32 %r7, [%r3]; st.global.u32 [%rd4], %r7;\n",
               64, mirrored);
}

static uint32_t counted(uint32_t i) {
    return 100 + 2 * i;
}

static uint32_t swapped(uint32_t i) {
    return i == 7 ? 107 : 0;
}

Test(ptx, atomics_give_what_was_there) {
    expect_out("atom.global.add.u64 %rd6, [%rd1], 2; cvt.u32.u64 %r4, %rd6;\n"
               "st.global.u32 [%rd4], %r4;\n",
               64, counted);
    expect_out("mov.u32 %r4, 0; atom.acq_rel.gpu.add.u32 %r5, [%rd1], 2;\n"
               "st.global.u32 [%rd4], %r5;\n",
               64, counted);
    expect_out("atom.acq_rel.sys.cas.b32 %r4, [%rd3], 107, %r1; ld.global.u32 %r5, [%rd3];\n"
               "setp.eq.s32 %p1, %r5, %r1; selp.b32 %r6, %r4, 0, %p1;\n"
               "st.global.u32 [%rd4], %r6;\n",
               64, swapped);
}

/* ---- faults ---- */

static void expect_fault(const char *text, enum ptx_fault_kind kind, const char *says) {
    struct tried t;
    try(&t, text, 64);
    cr_expect(!*t.error.text && t.fault.kind == kind && strstr(t.fault.text, says),
              "%s: '%s%s' does not say '%s'", text, t.error.text, t.fault.text, says);
}

Test(ptx, accesses_outside_and_misaligned_fault) {
    expect_fault("ld.global.u32 %r4, [%rd3+4];\n", PTX_FAULT_ADDRESS, "thread 63 of block 0");
    expect_fault("st.global.u32 [%rd4+-4], %r1;\n", PTX_FAULT_ADDRESS, "thread 0 of block 0");
    expect_fault("ld.global.v2.u32 {%r4, %r5}, [%rd3];\n", PTX_FAULT_ALIGNMENT, "multiple of 8");
    expect_fault("ld.shared.u32 %r4, [s+1024];\n", PTX_FAULT_ADDRESS, "the block's shared memory");
    expect_fault("ld.shared.v4.u32 {%r4, %r5, %r6, %r7}, [s+8];\n", PTX_FAULT_ALIGNMENT,
                 "multiple of 16");
    expect_fault("ld.param.u64 %rd6, [p+16];\n", PTX_FAULT_ADDRESS, "the kernel's parameter");
    expect_fault("mov.u64 %rd6, 0; ld.u32 %r4, [%rd6];\n", PTX_FAULT_ADDRESS, "may access");
    expect_fault("ld.shared.u8 %rs1, [s+1023]; ld.shared.s16 %r4, [s+1023];\n", PTX_FAULT_ALIGNMENT,
                 "multiple of 2");
}

Test(ptx, barriers_that_not_all_threads_reach_fault) {
    expect_fault("setp.lt.u32 %p1, %r1, 40; @%p1 bra $on; ret;\n$on: bar.sync 0;\n",
                 PTX_FAULT_BARRIER, "thread 40 has ended");
    expect_fault("setp.lt.u32 %p1, %r1, 5; @%p1 bra $a; bar.sync 0; bra.uni $b;\n"
                 "$a: bar.sync 0;\n$b: mov.u32 %r4, 0;\n",
                 PTX_FAULT_BARRIER, "another barrier");
    expect_fault("setp.lt.u32 %p1, %r1, 32; @%p1 bar.sync 0;\n", PTX_FAULT_BARRIER, "has ended");
}

Test(ptx, races_in_shared_memory_fault) {
    static const char other[] = "xor.b32 %r5, %r2, 4; mov.u32 %r6, s; add.s32 %r5, %r5, %r6;\n";
    char text[1000];
    const char *const races[] = {"st.shared.u32 [%r3], %r1; ld.shared.u32 %r4, [%r5];\n",
                                 "ld.shared.u32 %r4, [%r5]; st.shared.u32 [%r3], %r1;\n",
                                 "st.shared.u32 [s], %r1;\n",
                                 "st.shared.u32 [%r3], %r1; bar.sync 0; ld.shared.u32 %r4, [%r5];\n"
                                 "st.shared.u32 [%r3], %r1;\n"};
    for (int i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "%s%s", other, races[i]);
        expect_fault(text, PTX_FAULT_RACE, "no barrier between");
    }
    expect_fault("cp.async.ca.shared.global [%r3], [%rd3], 4; ld.shared.u32 %r4, [%r3];\n",
                 PTX_FAULT_RACE, "has not been waited for");
    expect_fault("cp.async.ca.shared.global [%r3], [%rd3], 4; bar.sync 0;\n"
                 "cp.async.wait_all; xor.b32 %r5, %r2, 128; mov.u32 %r6, s;\n"
                 "add.s32 %r5, %r5, %r6; ld.shared.u32 %r4, [%r5];\n",
                 PTX_FAULT_RACE, "cp.async of thread 32 has not been waited for");
    /* what is ordered, and what touches other bytes, is none */
    struct tried t;
    snprintf(text, sizeof text, "%s%s", other,
             "st.shared.u32 [%r3], %r1; bar.sync 0; ld.shared.u32 %r4, [%r5]; bar.sync 0;\n"
             "st.shared.u32 [%r3], %r4; add.s32 %r7, %r6, %r1; bar.sync 0;\n"
             "st.shared.u8 [%r7], %rs1; ld.shared.u8 %rs2, [%r7];\n");
    try(&t, text, 64);
    cr_expect(!*t.error.text && !t.fault.kind, "%s%s", t.error.text, t.fault.text);
}

Test(ptx, mma_takes_a_whole_warp) {
    expect_fault("setp.lt.u32 %p1, %r1, 16; @%p1 bra $on; bra.uni $off;\n"
                 "$on: mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%f1,%f2,%f3,%f4},\n"
                 "{%r4,%r5,%r6,%r7}, {%r8,%r9}, {%f1,%f2,%f3,%f4};\n$off: mov.u32 %r4, 0;\n",
                 PTX_FAULT_OTHER, "a part of its warp");
}
#endif
