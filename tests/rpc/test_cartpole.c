/* The program of the text, examples/rpc_cartpole.c: the first episodes are PyTorch's. */
#include <stdlib.h>

#include "tests/harness/harness.h"

static void output_of(const char *words, char *out, size_t bytes) {
    char command[256];
    snprintf(command, sizeof command, BUILD_DIR "/examples/rpc_cartpole %s", words);
    FILE *p = popen(command, "r");
    size_t used = fread(out, 1, bytes - 1, p);
    out[used] = 0;
    cr_assert_eq(pclose(p), 0, "%s: %s", words, out);
}

/* tests/golden/make_rpc_cartpole.py: each of the first 60 episodes of three seeds is as long as
 * PyTorch's, so every action in them is the same. So it is where rewards come with the states. */
Test(cartpole, first_episodes_are_those_of_pytorch, .timeout = 60) {
    static char line[4096], out[16384];
    FILE *golden = fopen("tests/golden/rpc_cartpole.txt", "r");
    cr_assert(golden && fgets(line, sizeof line, golden));
    while (fgets(line, sizeof line, golden)) {
        char words[128], *theirs = line, *ours = out;
        long seed = strtol(line, &theirs, 10);
        snprintf(words, sizeof words, "--seed %ld --episodes 60 --log_interval 1%s", seed,
                 seed == 2 ? " --one_call" : "");
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

/* With two observers, which see the same starts but draw their actions in turns. */
Test(cartpole, more_observers_play_at_once, .timeout = 60) {
    char out[4096];
    output_of("--world-size 3 --episodes 4 --log-interval 2 --mend --rate", out, sizeof out);
    cr_expect(strstr(out, "Episode 4\tLast reward: "), "%s", out);
    cr_expect(strstr(out, " steps: ") && strstr(out, " a second\n"), "%s", out);
}

/* The text's arguments with their defaults; a word that is none is refused. */
Test(cartpole, options_are_the_text_s, .timeout = 60) {
    char out[4096];
    output_of("--help", out, sizeof out);
    cr_expect(strstr(out, "RPC Reinforcement Learning Example\n"), "%s", out);
    cr_expect(strstr(out, "--log_interval N  interval between training status logs (default: 10)"));
    cr_expect(strstr(out, "--gamma G         how much to value future rewards (default: 0.99)"));
    output_of("--world_size 1 2>&1 | tail -1", out, sizeof out);
    cr_expect(strstr(out, "--rate"), "%s", out);
}
