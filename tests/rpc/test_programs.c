/* Tests programs with remote calls: the tutorial's two (CartPole, and a recurrent model with a
 * parameter server), and two common uses: a pipeline over two workers, and a parameter server with
 * several trainers. */
#include <math.h>
#include <stdlib.h>

#include "tests/harness/harness.h"

static void output_of(const char *words, char *out, size_t bytes) {
    char command[256];
    snprintf(command, sizeof command, BUILD_DIR "/examples/%s", words);
    FILE *p = popen(command, "r");
    size_t used = fread(out, 1, bytes - 1, p);
    out[used] = 0;
    cr_assert_eq(pclose(p), 0, "%s: %s", words, out);
}

/* Nine digits are all bits of a float; the loss is a sum of floats in double. */
static void same_in_one_process(const char *words, const char *has) {
    char with_local[128], remote[4096], local[4096];
    snprintf(with_local, sizeof with_local, "%s --local", words);
    output_of(words, remote, sizeof remote);
    output_of(with_local, local, sizeof local);
    cr_expect_str_eq(remote, local);
    cr_expect(strstr(remote, has), "%s", remote);
}

/* Batched updates: as many as steps, and the same bits in every run. One by one: as many as
 * gradients. */
Test(programs, a_server_updates_in_batches_or_one_by_one, .timeout = 60) {
    char first[4096], again[4096];
    output_of("rpc_parameter_server --trainers 4 --steps 12 | sort", first, sizeof first);
    output_of("rpc_parameter_server --trainers 4 --steps 12 | sort", again, sizeof again);
    cr_expect_str_eq(first, again);
    cr_expect(strstr(first, "12 updates\ntrainer 0: loss 0.0"), "%s", first);
    output_of("rpc_parameter_server --trainers 4 --steps 12 --async", again, sizeof again);
    cr_expect(strstr(again, "48 updates\n"), "%s", again);
}

/* A pipeline; the recurrent model, whose masks of dropout are drawn alike, too; and a dense part by
 * DDP beside a remote embedding, with an odd number of trainers. */
Test(programs, remote_parts_have_the_bits_of_one_tape, .timeout = 60) {
    same_in_one_process("rpc_pipeline --split 8 --steps 4", "step 3: loss 1.9");
    same_in_one_process("rpc_rnn --mend --lr 2 --epochs 4", "Training epoch 3, loss ");
    same_in_one_process("rpc_ddp --trainers 3 --steps 12", "step 11: loss 2.");
}

/* One job by send and recv, by remote calls and by DDP. */
Test(programs, three_ways_have_the_same_bits, .timeout = 60) {
    char first[4096], other[4096];
    output_of("three_ways send", first, sizeof first);
    cr_expect(strstr(first, "step 19: loss 0.0074"), "%s", first);
    for (int i = 0; i < 2; i++) {
        output_of(i ? "three_ways ddp" : "three_ways rpc", other, sizeof other);
        cr_expect_str_eq(other, first);
    }
}

/* tests/golden/make_rpc_rnn.py; after that the last bits have grown. */
Test(programs, losses_are_those_of_pytorch, .timeout = 60) {
    enum { EPOCHS = 6 };
    char out[4096], line[256];
    output_of("rpc_rnn --mend --lr 2 --dropout 0 --epochs 6", out, sizeof out);
    FILE *f = fopen("tests/golden/rpc_rnn.txt", "r");
    cr_assert(f && fgets(line, sizeof line, f));
    const char *at = out;
    for (int i = 0; i < EPOCHS; i++) {
        at = strstr(at + 1, "loss ");
        cr_assert(at && fgets(line, sizeof line, f), "epoch %d: %s", i, out);
        double loss = atof(at + 5), theirs = atof(line);
        cr_expect(fabs(loss - theirs) < 2e-6, "epoch %d: %.9g, PyTorch %.9g", i, loss, theirs);
    }
    fclose(f);
}

/* ---- CartPole ---- */

/* tests/golden/make_rpc_cartpole.py: each of the first 60 episodes of three seeds is as long as
 * PyTorch's, so every action in them is the same. So it is where rewards come with the states. */
Test(programs, first_episodes_are_those_of_pytorch, .timeout = 60) {
    static char line[4096], out[16384];
    FILE *golden = fopen("tests/golden/rpc_cartpole.txt", "r");
    cr_assert(golden && fgets(line, sizeof line, golden));
    while (fgets(line, sizeof line, golden)) {
        char words[128], *theirs = line, *ours = out;
        long seed = strtol(line, &theirs, 10);
        snprintf(words, sizeof words, "rpc_cartpole --seed %ld --episodes 60 --log_interval 1%s",
                 seed, seed == 2 ? " --one_call" : "");
        output_of(words, out, sizeof out);
        for (int i = 1; i <= 60; i++, ours++) {
            ours = strstr(ours, "Last reward: ");
            cr_assert(ours, "seed %ld: episode %d: %s", seed, i, out);
            cr_expect_eq((long)atof(ours + 13), strtol(theirs, &theirs, 10), "seed %ld: episode %d",
                         seed, i);
        }
    }
    fclose(golden);
}
