/* Compares sharded training with PyTorch's fully_shard (tests/golden/make_fsdp.py): the losses, and
 * the rows of each parameter and its optimizer state that a rank of PyTorch holds. */
#include "base/error.h"
#include "base/files/safetensors.h"
#include "tests/app/cli/run.h"
#include "tests/golden/golden.h"

#define FACTS "golden/fsdp.txt"

/* Promised are 2e-6 for a loss. The golden numbers are float64's, so these are Duet's roundings:
 * 3e-8 of a loss was measured, and 2.5e-7 of the norm of a shard. */
static const double LOSS_TOLERANCE = 2e-6, SHARD_TOLERANCE = 2e-6;

enum { STEPS = 5, LARGEST = 9216 };

static void check_losses(const char *name) {
    char *text = cli_read("l.csv", NULL), *line = strchr(text, '\n'), key[64];
    for (int step = 0; step < STEPS; step++, line = strchr(line + 1, '\n')) {
        double got = NAN, want;
        snprintf(key, sizeof key, "loss %s %d", name, step);
        want = golden_number(FACTS, key);
        sscanf(line + 1, "%*d,%*d,%lf", &got);
        cr_expect(fabs(got - want) <= LOSS_TOLERANCE * want, "%s: %.9g, not %.9g", key, got, want);
    }
    free(text);
}

/* The rows of `rank`, of the tensor of the checkpoint: as in torch.chunk, but for the last ranks
 * equally many. */
static void check_shard(const struct safetensors *s, const char *key, const char *name,
                        const char *state, int rank, int rows, int ranks) {
    static float whole[LARGEST];
    static double mine[LARGEST];
    char full[128];
    int value = !strcmp(state, "value");
    snprintf(full, sizeof full, value ? "%s" : "optimizer.%s.%s", value ? name : state, name);
    const struct safetensors_entry *e = safetensors_find(s, full);
    cr_assert(e && e->count <= LARGEST, "%s", full);
    cr_assert_eq(safetensors_read(s, "F32", full, e->dims, e->shape, whole), OK, "%s",
                 error_message());
    int each = ((int)e->shape[0] + ranks - 1) / ranks, width = (int)e->count / (int)e->shape[0];
    cr_assert(rank * each + rows <= e->shape[0], "%s", key);
    for (int i = 0; i < rows * width; i++)
        mine[i] = (double)whole[rank * each * width + i];
    double square, apart = golden_distance(FACTS, key, mine, (size_t)(rows * width), &square);
    cr_expect(apart <= SHARD_TOLERANCE * SHARD_TOLERANCE * square, "%s: %g of the norm", key,
              sqrt(apart / square));
}

static int check_shards(const char *case_name, int ranks) {
    struct safetensors s = {0};
    char *text = cli_read(FACTS, NULL), *rest = text;
    int checked = 0;
    cr_assert_eq(safetensors_open(&s, "ck"), OK, "%s", error_message());
    for (char *line; (line = strsep(&rest, "\n"));) {
        char of[32], name[32], state[32], key[160];
        int rank, rows;
        if (sscanf(line, "%31s %31s %31s %d %d", of, name, state, &rank, &rows) != 5) continue;
        if (strcmp(of, case_name) || !rows) continue;
        snprintf(key, sizeof key, "%s %s %s %d %d", of, name, state, rank, rows);
        check_shard(&s, key, name, state, rank, rows, ranks);
        checked++;
    }
    safetensors_close(&s);
    free(text);
    return checked;
}

CliTest(cli_fsdp, trains_as_pytorchs_fully_shard, 120) {
    static const struct {
        const char *name, *options;
        int ranks, shards;
    } cases[] = {
        {"mlp_sgd", "--model mlp --shape 17 --mlp-hidden 23,11 --lr 0.1 --momentum 0.9", 2,
         2 * 2 * 6},
        {"mlp_adam", "--model mlp --shape 17 --mlp-hidden 23,11 --optimizer adam", 4, 4 * 3 * 6},
        {"conv_adam", "--model complex --shape 2x5x4 --optimizer adam", 3, 3 * 3 * 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli_well("train --mode fsdp --devices %d %s --classes 7 --dataset random --samples 60 "
                 "--batch-size 12 --no-shuffle --steps 5 --log-loss l.csv --checkpoint ck --quiet",
                 cases[i].ranks, cases[i].options);
        check_losses(cases[i].name);
        cr_assert_eq(check_shards(cases[i].name, cases[i].ranks), cases[i].shards);
    }
}
