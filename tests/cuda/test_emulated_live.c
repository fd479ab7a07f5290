/* --live of a run on GPUs: on an emulated runtime the dashboard says what the JSON of the run says,
 * as it does of emulated devices (tests/cli/test_live.c). */
#include "tests/stand_ins/cuda_emulated.h"

#ifndef CUDA_EMULATION
ONLY_EMULATED(emulated_live)
#else
#include "tests/cli/data.h"
#include "tests/cli/live.h"

Test(emulated_live, the_screen_says_what_the_json_says, .timeout = 240, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    static const struct {
        const char *mode, *title;
    } ways[] = {{"dp", "DP x 2: mlp on fashion-mnist"}, {"ddp", "DDP x 2: mlp on fashion-mnist"}};
    put_data(60, 20);
    setenv("TERM", "xterm-256color", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("EMULATED_CUDA_LATE_US", "200", 1);
    setenv("EMULATED_CUDA_GUARD", "1", 1);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct session s;
        char words[256];
        snprintf(words, sizeof words,
                 "train --live --device cuda --mode %s --devices 2 --data-dir d --model mlp "
                 "--mlp-hidden 16 --batch-size 20 --epochs 2 --json j",
                 ways[i].mode);
        begin(&s, 80, words);
        end(&s, 0, words);
        says_what_json_says(&s, "j", ways[i].title, "cuda");
        cli_free(&s.c);
    }
}
#endif
