/* The program of the text, examples/rpc_cartpole.c: the first episodes are PyTorch's. */
#include "tests/harness/harness.h"

static void output_of(const char *words, char *out, size_t bytes) {
    char command[256];
    snprintf(command, sizeof command, BUILD_DIR "/examples/rpc_cartpole %s", words);
    FILE *p = popen(command, "r");
    size_t used = fread(out, 1, bytes - 1, p);
    out[used] = 0;
    cr_assert_eq(pclose(p), 0, "%s: %s", words, out);
}

/* PyTorch 2.15 with seed 1 and one observer, gymnasium's CartPole-v1: the lengths of episodes 10
 * and 20. Every action of them is the same, though the floats may differ in their last bits. */
Test(cartpole, first_episodes_are_those_of_pytorch, .timeout = 60) {
    char out[4096];
    output_of("--episodes 20", out, sizeof out);
    cr_expect(strstr(out, "Episode 10\tLast reward: 24.00\t"), "%s", out);
    cr_expect(strstr(out, "Episode 20\tLast reward: 111.00\t"), "%s", out);
}

/* With two observers, which see the same starts but draw their actions in turns. */
Test(cartpole, more_observers_play_at_once, .timeout = 60) {
    char out[4096];
    output_of("--world-size 3 --episodes 4 --log-interval 2 --mend", out, sizeof out);
    cr_expect(strstr(out, "Episode 4\tLast reward: "), "%s", out);
}
