/* Tests the programs that follow the tutorials: compares their outputs, and checks that any
 * launcher can start a program as ranks. */
#include "tests/examples/shell.h"

#define EXAMPLES BUILD_DIR "/examples/"

/* One model, one batch, three programs: the same losses, and DataParallel and
 * DistributedDataParallel on two and four devices. */
Test(texts, three_programs_print_the_same_losses, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(0, EXAMPLES "mlp/single >{}/single && test $(wc -l <{}/single) = 5");
    for (int n = 1; n <= 4; n *= 2) {
        char line[300];
        snprintf(line, sizeof line,
                 EXAMPLES
                 "mlp/data_parallel %d >{}/dp && grep -v \"^Let's use %d devices!$\" {}/dp "
                 ">{}/losses; cmp {}/losses {}/single && test $(wc -l <{}/dp) = %d",
                 n, n, n == 1 ? 5 : 6);
        RUN(0, line);
        for (int i = 0; i < 2; i++) {
            snprintf(line, sizeof line,
                     BUILD_DIR "/duet run --nproc-per-node %d " EXAMPLES "mlp/%s >{}/ranks && "
                               "cmp {}/ranks {}/single",
                     n, i ? "fsdp" : "ddp");
            RUN(0, line);
        }
    }
    RUN(0, EXAMPLES "mlp/ddp | cmp - {}/single");
}

/* The numbers are those of torch.manual_seed(0) here, so they are the same on every device count
 * as printed. */
Test(texts, ten_epochs_say_their_loss, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(0, EXAMPLES "epochs 1 >{}/one && " EXAMPLES "epochs 4 >{}/four && tail -n +2 {}/four | "
                    "cmp - {}/one && head -1 {}/four && tail -1 {}/one");
    cr_expect_not_null(strstr(output(), "Let's use 4 devices!\nEpoch [10/10], Loss: 1."), "%s",
                       output());
    RUN(0, EXAMPLES "epochs 2 complex | grep -c '^Epoch \\[[0-9]*/10\\], Loss: [0-9.]*$'");
    cr_expect_str_eq(output(), "10\n");
    RUN(2, EXAMPLES "epochs 2 ComplexModel");
    RUN(2, EXAMPLES "epochs --help");
    cr_expect_str_eq(output(), "epochs [DEVICES [simple | complex]]: 1 to 64 devices\n");
}

/* Starts two ranks as Open MPI's mpirun numbers them, and shows what each printed. */
#define MPIRUN(program)                                                                  \
    "rank() { env -u RANK -u WORLD_SIZE OMPI_COMM_WORLD_RANK=$1 OMPI_COMM_WORLD_SIZE=2 " \
    "OMPI_COMM_WORLD_LOCAL_RANK=$1 OMPI_COMM_WORLD_LOCAL_SIZE=2 MASTER_PORT=$$ " program \
    "; }; rank 0 >{}/0 2>&1 & rank 1 >{}/1 2>&1; wait; cat {}/0 {}/1"

/* Every example as two ranks of mpirun. */
static const struct {
    const char *program, *arguments;
    enum { ALONE, ONE_SPEAKS, BOTH_SPEAK } as_ranks;
} programs[] = {
    /* programs of one process, which refuse to run twice */
    {"alexnet", "16", ALONE},
    {"chapter_demos", "", ALONE},
    {"data_parallel", "4", ALONE},
    {"dp_train", "2 synthetic 1", ALONE},
    {"epochs", "2", ALONE},
    {"files", "{}/samples 0", ALONE},
    {"lenet_from_scratch", "--steps 1", ALONE},
    {"mlp/data_parallel", "2", ALONE},
    {"mlp/single", "", ALONE},
    {"my_model", "train --steps 1", ALONE},
    {"resnet18", "1 4 0.1 synthetic 1", ALONE},
    {"shared_rnn", "", ALONE},
    {"tensor_parallel", "", ALONE},
    /* One job: if rank 1 were a job of its own, it would print what rank 0 prints. */
    {"convnet_mnist", "2 synthetic 2", ONE_SPEAKS},
    {"ddp_train", "synthetic 1", ONE_SPEAKS},
    {"ddp_traps", "set_epoch", ONE_SPEAKS},
    {"mlp/ddp", "", ONE_SPEAKS},
    {"mlp/fsdp", "", ONE_SPEAKS},
    {"model_parallel", "4", ONE_SPEAKS},
    {"rpc_cartpole", "--episodes 10", ONE_SPEAKS},
    {"rpc_rnn", "--epochs 1", ONE_SPEAKS},
    {"tensor_parallel_ranks", "", ONE_SPEAKS},
    /* Each rank prints something different. */
    {"all_reduce", "", BOTH_SPEAK},
    {"rpc_ddp", "", BOTH_SPEAK},
    {"rpc_parameter_server", "", BOTH_SPEAK},
    {"rpc_pipeline", "", BOTH_SPEAK},
    {"scatter", "", BOTH_SPEAK},
    {"three_ways", "send", BOTH_SPEAK},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

Test(texts, ranks_of_mpirun_are_one_job_or_refused, .timeout = 300, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(0, MPIRUN(EXAMPLES "all_reduce"));
    cr_expect_str_eq(output(), "rank 0: [[3, 3]]\nrank 1: [[3, 3]]\n");
    for (int i = 0; i < PROGRAMS; i += test_short() ? 3 : 1) {
        char line[900];
        if (programs[i].as_ranks == BOTH_SPEAK) continue;
        snprintf(line, sizeof line, MPIRUN(EXAMPLES "%s %s"), programs[i].program,
                 programs[i].arguments);
        int status = shell(line);
        if (programs[i].as_ranks == ONE_SPEAKS) {
            cr_expect_eq(status, 0, "%s: %s", programs[i].program, output());
            RUN(0, "test -s {}/0 && ! test -s {}/1 || head {}/0 {}/1");
            cr_expect_str_eq(output(), "", "%s: %s", programs[i].program, output());
            continue;
        }
        RUN(0, "for i in 0 1; do test $(wc -l <{}/$i) = 1 && grep -q "
               "\"is rank $i of 2 that another program started\" {}/$i || head {}/$i; done");
        cr_expect_str_eq(output(), "", "%s: %s", programs[i].program, output());
    }
    RUN(0, MPIRUN(BUILD_DIR "/duet train --steps 1"));
    cr_expect_not_null(strstr(output(), "duet train: this process is rank 1 of 2 "
                                        "that another program started, and the command"),
                       "%s", output());
}

/* Programs whose ranks have their own parts, with too few and too many. */
Test(texts, another_number_of_ranks_is_refused_in_one_line, .timeout = 120, .init = scratch_make,
     .fini = scratch_remove) {
    static const struct {
        const char *program;
        int needs, started[4];
    } rows[] = {{"rpc_pipeline", 3, {2, 5}},
                {"rpc_ddp", 4, {1, 3, 5}},
                {"rpc_ddp --trainers 3", 5, {4}},
                {"rpc_parameter_server", 4, {1, 2, 3, 6}},
                {"three_ways send", 4, {3, 5}},
                {"three_ways rpc", 4, {3}},
                {"rpc_rnn", 2, {1, 3}},
                {"rpc_cartpole", 2, {1, 3}},
                {"rpc_cartpole --world_size 3", 3, {2}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int k = 0; k < 4 && rows[i].started[k]; k++) {
            char line[300], needs[128];
            snprintf(line, sizeof line,
                     BUILD_DIR "/duet run --nproc-per-node %d " EXAMPLES
                               "%s >{}/all 2>&1; test $? = 2 && grep 'ranks were started' {}/all "
                               "&& ! grep '^rpc:\\|^step\\|^rank' {}/all",
                     rows[i].started[k], rows[i].program);
            snprintf(needs, sizeof needs,
                     ": %d ranks were started: with these options it needs %d\n",
                     rows[i].started[k], rows[i].needs);
            RUN(0, line);
            cr_expect(strstr(output(), needs) && strchr(output(), '\n')[1] == 0, "%s: %s",
                      rows[i].program, output());
        }
}

/* With half of a launcher's numbers a program does not start ranks of its own. */
Test(texts, a_rank_without_the_number_of_ranks_is_refused, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(2, "RANK=0 " EXAMPLES "mlp/ddp");
    cr_expect_not_null(strstr(output(), "environment variable WORLD_SIZE: expected, but not set"),
                       "%s", output());
    RUN(2, "WORLD_SIZE=2 " EXAMPLES "mlp/ddp");
    cr_expect_not_null(strstr(output(), "environment variable RANK: expected, but not set"), "%s",
                       output());
    RUN(0, "WORLD_SIZE=2 " EXAMPLES "mlp/single");
}

Test(texts, every_example_is_tried_as_ranks, .init = scratch_make, .fini = scratch_remove) {
    char all[4096] = "cd examples && ls *.c mlp/*.c | grep -v 'mlp/model.c\\|mlp/data.c' | sed "
                     "'s/\\.c$//' | grep -vx";
    for (int i = 0; i < PROGRAMS; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), " -e %s", programs[i].program);
    RUN(1, all);
    cr_expect_str_eq(output(), "");
}

Test(texts, a_recurrent_network_is_cut_along_its_samples, .timeout = 120, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(0, EXAMPLES "shared_rnn >{}/rnn && grep -o 'loss.*' {}/rnn | sort -u | wc -l && "
                    "grep -c '(1,64,32)' {}/rnn");
    cr_expect_str_eq(output(), "1\n3\n");
    RUN(0,
        EXAMPLES "shared_rnn compare --dataset random --shape 1x32x16 --classes 10 --batch-size "
                 "64 --devices 2 --samples 256 --steps 3 --quiet | grep -c 'identical to the bit'");
    cr_expect_str_eq(output(), "2\n");
}

/* One file a sample: what a loader's workers read is what the loop would have read itself. */
Test(texts, workers_read_the_same_files, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(0, EXAMPLES "files {}/samples 0 1 3 | sed 's/.*last loss //' | sort -u | wc -l && ls "
                    "{}/samples | wc -l");
    cr_expect_str_eq(output(), "1\n1024\n");
    RUN(0, "rm {}/samples/7.txt && ! " EXAMPLES "files {}/samples 2");
    RUN(2, EXAMPLES "files {}/samples");
}

/* docs/texts.md promises for each heading a program or command, and a test. Each row has three
 * cells, the programs were built, and the tests are there. */
Test(texts, every_row_of_the_table_has_a_program_and_a_test, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    RUN(0, "grep '^| ' docs/texts.md | grep -v '^| heading' >{}/rows && test $(wc -l <{}/rows) -gt "
           "30 && ! grep -vE '^\\| [^|]+ \\| `[^|]*` ?[^|]* \\| "
           "(`([a-z_/]+/test_[a-z0-9_]+\\.c|check_machines\\.sh)`(, )?)+ \\|$' {}/rows");
    RUN(0, "for f in $(grep -o '[a-z_/]*/test_[a-z0-9_]*\\.c' {}/rows | sort -u); do test -f "
           "tests/$f || echo $f; done; for p in $(grep -o 'build/examples/[a-z0-9_/]*' {}/rows | "
           "sort -u); do test -x " BUILD_DIR "/${p#build/} || echo $p; done");
    cr_expect_str_eq(output(), "");
}
