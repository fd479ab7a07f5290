/* cli/options: any words after `duet train`, one in each line of the input. What is accepted goes
 * through run_config_check, as the command does it. */
#include "cli/options/run_options.h"
#include "tests/fuzz/fuzz.h"
#include "train/run.h"

enum { WORDS = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = as_text(data, size), *words[WORDS], *save = NULL;
    struct options train = {.command = "train"}, compare = {.command = "compare"};
    int count = 0;
    for (char *word = strtok_r(text, "\n", &save); word && count < WORDS;
         word = strtok_r(NULL, "\n", &save))
        words[count++] = word;
    struct run_config config, other;
    run_config_default(&config);
    run_config_default(&other);
    int code = run_options_parse(&train, count, words, &config);
    if (!code && !train.help) code = run_config_check(&config);
    if (code) check_error(code);
    code = run_options_parse(&compare, count, words, &other);
    if (code) check_error(code);
    free(text);
    return 0;
}
