/* duet sampler prints the indices that torch.utils.data.DistributedSampler gives to one rank. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options/help.h"
#include "cli/options/parse.h"
#include "data/sampler.h"

struct words {
    int64_t size, world, rank; /* NOT_GIVEN */
    int epoch;
    uint64_t seed;
    int drop_last, shuffle;
};
enum { NOT_GIVEN = INT32_MIN };

#define AT(member) OPTION_AT(struct words, member)
static const struct option sampler_options[] = {
    {"--dataset-size", "N", "the number of samples", read_int, AT(size), 0, INT32_MAX, ALWAYS},
    {"--world-size", "W", "the number of ranks", read_int, AT(world), 1, INT32_MAX, ALWAYS},
    {"--rank", "R", "whose indices", read_int, AT(rank), INT32_MIN + 1, INT32_MAX, ALWAYS},
    {"--seed", "S", "the seed of the order (default 0)", read_seed, AT(seed), NO_LIMITS, ALWAYS},
    {"--epoch", "E", "the epoch, which sets the order too (default 0)", read_int, AT(epoch), 0,
     INT32_MAX, ALWAYS},
    {"--drop-last", NULL, "truncate the order to a multiple of W instead of repeating indices",
     read_on, AT(drop_last), NO_LIMITS, ALWAYS},
    {"--no-shuffle", NULL, "take the indices in order", read_off, AT(shuffle), NO_LIMITS, ALWAYS},
    OPTION_END};

static int help(void) {
    say_text(
        "usage: duet sampler --dataset-size N --world-size W --rank R [options]\n\n"
        "Prints the indices that torch.utils.data.DistributedSampler gives to rank R of W, one "
        "per line.\n\n");
    options_print(sampler_options);
    return 0;
}

int command_sampler(int argc, char **argv, const struct duet_model *own) {
    (void)own;
    struct words w = {.size = NOT_GIVEN, .world = NOT_GIVEN, .rank = NOT_GIVEN, .shuffle = 1};
    struct options options = {.command = "sampler", .part = {{sampler_options, &w}}};
    int code = options_read(&options, argc, argv);
    if (code) return report_error(code);
    if (options.help) return help();
    if (w.size == NOT_GIVEN || w.world == NOT_GIVEN || w.rank == NOT_GIVEN)
        return report_error(fail(ERR_USAGE, "sampler: --dataset-size, --world-size and --rank are "
                                            "needed: see duet sampler --help"));
    struct order order = {.count = (int)w.size,
                          .replicas = (int)w.world,
                          .end = w.drop_last ? ORDER_CUT : ORDER_PAD,
                          .shuffle = w.shuffle,
                          .seed = w.seed};
    int32_t *index = NULL;
    int n = 0;
    code = sampler_indices(&order, (int)w.rank, w.epoch, &index, &n);
    for (int i = 0; !code && i < n; i++)
        printf("%d\n", index[i]);
    free(index);
    return report_error(code);
}
