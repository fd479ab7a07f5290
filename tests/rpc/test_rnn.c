/* The second program of the text, examples/rpc_rnn.c: the losses of one tape, and PyTorch's. */
#include <math.h>

#include "tests/harness/harness.h"

static void output_of(const char *words, char *out, size_t bytes) {
    char command[256];
    snprintf(command, sizeof command, BUILD_DIR "/examples/rpc_rnn %s", words);
    FILE *p = popen(command, "r");
    size_t used = fread(out, 1, bytes - 1, p);
    out[used] = 0;
    cr_assert_eq(pclose(p), 0, "%s: %s", words, out);
}

/* Nine digits are all bits of a float; the masks of dropout are drawn alike. */
Test(rnn, remote_parts_have_the_bits_of_one_tape, .timeout = 60) {
    char remote[4096], local[4096];
    output_of("--mend --lr 2 --epochs 4", remote, sizeof remote);
    output_of("--mend --lr 2 --epochs 4 --local", local, sizeof local);
    cr_expect_str_eq(remote, local);
    cr_expect(strstr(remote, "Training epoch 3, loss "), "%s", remote);
}

/* tests/golden/make_rpc_rnn.py; after that the last bits have grown. */
Test(rnn, losses_are_those_of_pytorch, .timeout = 60) {
    enum { EPOCHS = 6 };
    char out[4096], line[256];
    output_of("--mend --lr 2 --dropout 0 --epochs 6", out, sizeof out);
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
