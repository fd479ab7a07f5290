/* Tests the environment of a program that uses CUDA, on the emulated runtime: variables that other
 * programs set in a shell, GPUs that accept one process at a time, instances of a GPU. */
#include "device/device.h"
#include "tests/allreduce/cuda.h"
#include "tests/allreduce/lose.h"
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"
#include "tests/app/cli/run.h"
#include "tests/app/doctor/shared.h"

#ifndef CUDA_EMULATION
Test(emulated_environment, needs_the_emulated_runtime, .timeout = 10) {
    cr_skip_test("make EMULATION=1 check runs this");
}
#else

static const char TINY[] =
    "--device cuda --data-dir d --model mlp --mlp-hidden 8 --steps 2 --batch-size 16";

static void set_up(int gpus) {
    set_gpus(gpus);
    setenv("DUET_NCCL", "/no/such/libnccl.so", 1);
    setenv("DUET_CUBLAS", "/no/such/libcublas.so", 1);
    put_data(32, 8);
}

/* A row of the doctor's look at the machine. */
static void doctor_says(const char *name, enum finding_state state, const char *text) {
    struct doctor_config config = doctor_config_default();
    config.target = DOCTOR_CUDA;
    struct findings *f = examine_on(check_machine, &config, 1);
    const struct finding *row = row_of(f, name);
    cr_expect(row->state == state && strstr(row->measured, text), "%s: %d, %s", name,
              (int)row->state, row->measured);
    findings_free(f);
}

/* ---- CUDA_DEVICE_MAX_CONNECTIONS ---- */

/* In one hardware queue the write that ends a wait would come after the wait. */
Test(emulated_environment, one_hardware_queue, .timeout = 120) {
    struct job job = {.page = share(sizeof(struct page)), .kind = DEVICE_CUDA, .free_s = 3};
    set_gpus(1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
    job.algorithm = ALLREDUCE_RING;
    kill_one(&job, 1, 3);
}

CliTest(emulated_environment, too_few_queues_are_not_taken, 60) {
    set_gpus(1);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
    const char *variable = "CUDA_DEVICE_MAX_CONNECTIONS", *asked[] = {"1", "7", "8", "16"},
               *taken[] = {"32", "32", "8", "16"};
    int count;
    for (int i = 0; i < 4; i++) {
        setenv(variable, asked[i], 1);
        cr_assert_eq(device_probe(DEVICE_CUDA, &count), OK);
        cr_expect_str_eq(getenv(variable), taken[i]);
    }
    setenv("CUDA_MPS_PIPE_DIRECTORY", "pipe", 1); /* all processes of a GPU share its queues */
    cr_assert(!mkdir("pipe", 0700) && !fclose(fopen("pipe/control", "w")));
    unsetenv(variable);
    cr_assert_eq(device_probe(DEVICE_CUDA, &count), OK);
    cr_expect_str_eq(getenv(variable), "8");
}

/* ---- CUDA_LAUNCH_BLOCKING ---- */

CliTest(emulated_environment, launches_that_wait, 120) {
    struct cli c;
    setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
    for (int gpus = 1; gpus <= 2; gpus++) {
        set_up(gpus);
        cli_run(&c, "compare %s --devices 2", TINY);
        cr_expect(c.status == 0 && strstr(c.out, "DDP = single: identical to the bit"), "%s%s",
                  c.err, c.out);
        cr_expect(strstr(c.err, "warning: CUDA_LAUNCH_BLOCKING=1: after an allreduce") &&
                      !strchr(strchr(c.err, '\n') + 1, '\n'),
                  "one line: %s", c.err);
        cli_free(&c);
    }
}

/* ---- compute mode ---- */

CliTest(emulated_environment, one_process_at_a_time, 120) {
    char machine[32];
    struct cli c;
    snprintf(machine, sizeof machine, "environment-%d", (int)getpid());
    setenv("EMULATED_MACHINE", machine, 1);
    setenv("EMULATED_COMPUTE_MODE", "exclusive", 1);
    set_up(1);
    cli_well("train %s --mode single --quiet", TINY);
    cli_well("train %s --mode dp --devices 2 --quiet", TINY); /* one process */
    cli_fails(1, ": cudaErrorDevicesUnavailable|docs/cuda.md says under \"Environment\"",
              "train %s --mode ddp --devices 2 --quiet", TINY);
    cli_run(&c, "devices");
    char *all = unbroken(c.out);
    cr_expect(strstr(all, "takes one process at a time: ranks share it only under MPS"), "%s",
              c.out);
    free(all);
    cli_free(&c);
    doctor_says("cuda(0): device", FINDING_OK, "one process at a time: ranks cannot share it");
    set_gpus(2);
    cli_well("train %s --mode ddp --devices 2 --quiet", TINY);
}

/* ---- MIG ---- */

/* A process gets one instance, so ranks that are given the same list share its first. Where each
 * rank is given one of its own, they cannot reach each other's memory: host memory is between. */
CliTest(emulated_environment, instances_of_a_gpu, 120) {
    struct cli c;
    setenv("EMULATED_MIG", "2", 1);
    set_up(1);
    setenv("ALL", "MIG-emulated-1", 1);
    setenv("CUDA_VISIBLE_DEVICES", "MIG-emulated-1,MIG-emulated-0", 1);
    cli_run(&c, "compare %s --devices 2", TINY);
    cr_expect(c.status == 0 && strstr(c.out, "DDP = single: identical to the bit"), "%s%s", c.err,
              c.out);
    cli_free(&c);
    FILE *script = fopen("each", "w");
    cr_assert_not_null(script);
    fprintf(script,
            "#!/bin/sh\nCUDA_VISIBLE_DEVICES=${ALL-MIG-emulated-$RANK} exec %s/" BUILD_DIR
            "/examples/ddp_train mnist 1 weights-${ALL-own}\n",
            cli_root_path);
    cr_assert(!fclose(script) && !chmod("each", 0700));
    cr_assert(!mkdir("data", 0700) && !symlink("../d", "data/mnist"));
    for (int own = 0; own < 2; own++) {
        cli_run(&c, "run --nproc-per-node 2 ./each");
        cr_assert(c.status == 0 && !strstr(c.err, "P2P"), "%d: %s", own, c.err);
        cli_free(&c);
        unsetenv("ALL");
    }
    cr_expect(cli_same_file("weights-MIG-emulated-1", "weights-own"), "other weights");
    setenv("CUDA_VISIBLE_DEVICES", "MIG-elsewhere", 1);
    cli_fails(2, "no GPU found (CUDA_VISIBLE_DEVICES may hide it)|--device cpu",
              "train %s --mode single", TINY);
}

/* ---- a driver that does not start ---- */

CliTest(emulated_environment, a_driver_that_does_not_start, 60) {
    set_up(1);
    setenv("EMULATED_CUDA_FAULT", "driver:fabric", 1);
    cli_fails(2, "cudaErrorSystemNotReady: |docs/cuda.md says under \"Environment\"|--device cpu",
              "train %s --mode single", TINY);
}

#endif
