/* duet sampler: prints the indices that torch.utils.data.DistributedSampler gives to one rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"
#include "base/parse.h"
#include "cli/commands.h"
#include "cli/say.h"
#include "data/sampler.h"

static int help(void) {
    say(stdout,
        "usage: duet sampler --dataset-size N --world-size W --rank R [flags]\n\n"
        "Prints the indices that torch.utils.data.DistributedSampler gives to rank R of W, one\n"
        "per line.\n\n"
        "  --seed S      the seed of the order (default 0)\n"
        "  --epoch E     the epoch, which sets the order too (default 0)\n"
        "  --drop-last   cut the order to a multiple of W instead of repeating indices\n"
        "  --no-shuffle  take the indices in order\n");
    return 0;
}

struct words {
    int64_t size, world, rank, epoch;
    uint64_t seed;
    int drop_last, no_shuffle, help;
};

static int read_words(int argc, char **argv, struct words *w) {
    const struct {
        const char *name;
        int64_t lowest, highest, *value;
    } numbers[] = {{"--dataset-size", 0, INT32_MAX, &w->size},
                   {"--world-size", 1, INT32_MAX, &w->world},
                   {"--rank", INT32_MIN, INT32_MAX, &w->rank},
                   {"--epoch", 0, INT32_MAX, &w->epoch}};
    static const char *const known[] = {"--dataset-size", "--world-size", "--rank",      "--epoch",
                                        "--seed",         "--drop-last",  "--no-shuffle"};
    for (int i = 0; i < argc; i++) {
        char word[32];
        snprintf(word, sizeof word, "%s", argv[i]);
        char *value = strchr(word, '=') ? strchr(argv[i], '=') + 1 : NULL;
        if (value) *strchr(word, '=') = 0;
        for (char *c = word; *c; c++)
            if (*c == '_') *c = '-';
        if (!strcmp(word, "--help") || !strcmp(word, "-h")) return w->help = 1, OK;
        int *on_off = !strcmp(word, "--drop-last")    ? &w->drop_last
                      : !strcmp(word, "--no-shuffle") ? &w->no_shuffle
                                                      : NULL;
        if (on_off && value)
            return fail(ERR_USAGE, "%s: takes no value, but was given %s: leave it out", word,
                        value);
        if (on_off) {
            *on_off = 1;
            continue;
        }
        int is_seed = !strcmp(word, "--seed");
        size_t k = 0;
        while (k < sizeof numbers / sizeof *numbers && strcmp(numbers[k].name, word))
            k++;
        if (k == sizeof numbers / sizeof *numbers && !is_seed)
            return unknown_flag(argv[i], known, sizeof known / sizeof *known,
                                "duet sampler --help");
        if (!value && i + 1 == argc) return fail(ERR_USAGE, "%s: no value: give a number", word);
        if (!value) value = argv[++i];
        CHECK(is_seed ? parse_seed(word, value, &w->seed)
                      : parse_int(word, value, numbers[k].lowest, numbers[k].highest,
                                  numbers[k].value));
    }
    if (w->size < 0 || w->world < 0 || w->rank == INT64_MIN)
        return fail(
            ERR_USAGE,
            "sampler: --dataset-size, --world-size and --rank are needed: see duet sampler --help");
    return OK;
}

int command_sampler(int argc, char **argv, const struct duet_model *own) {
    (void)own;
    struct words w = {.size = -1, .world = -1, .rank = INT64_MIN};
    int code = read_words(argc, argv, &w);
    if (code) return report_error(code);
    if (w.help) return help();
    struct order order = {.count = (int)w.size,
                          .replicas = (int)w.world,
                          .end = w.drop_last ? ORDER_CUT : ORDER_PAD,
                          .shuffle = !w.no_shuffle,
                          .seed = w.seed};
    int32_t *index = NULL;
    int n = 0;
    code = sampler_indices(&order, (int)w.rank, (int)w.epoch, &index, &n);
    for (int i = 0; !code && i < n; i++)
        printf("%d\n", index[i]);
    free(index);
    return report_error(code);
}
