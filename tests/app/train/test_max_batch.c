/* The search for the largest batch, with a run that is a mere comparison: whatever the limit and
 * the guess, it ends at the limit, has tried it and the next one, and takes few runs. */
#include "tests/harness/harness.h"
#include "train/estimate/max_batch.h"

struct limit {
    int batch, tried_good, tried_bad; /* the largest that fits; 1: it, the next one, was tried */
    int next;
};

static int run_up_to(void *context, const struct run_config *config, struct run_record *record) {
    struct limit *l = context;
    cr_expect(config->steps == MAX_BATCH_STEPS && config->data.workers == 0);
    if (config->batch_size > l->batch) {
        l->tried_bad |= config->batch_size == l->next;
        return fail(ERR_MEMORY, "%d is too much", config->batch_size);
    }
    l->tried_good |= config->batch_size == l->batch;
    record->devices = 2;
    record->device[1].memory.total_peak = (uint64_t)config->batch_size;
    return OK;
}

static struct run_config config_of(int samples) {
    struct run_config config;
    run_config_default(&config);
    config.dry = 1; /* an outline of the data set is enough */
    config.mode = MODE_DDP;
    config.devices = 3;
    config.data.samples = samples;
    snprintf(config.data.name, sizeof config.data.name, "synthetic");
    return config;
}

Test(max_batch, ends_at_the_limit, .timeout = 20) {
    enum { SAMPLES = 1000, MOST = SAMPLES / 3 * 3, ENOUGH = 20 };
    static const int guesses[] = {0, 3, 30, 300, 999, 5000};
    struct run_config config = config_of(SAMPLES);
    for (int batch = 0; batch <= MOST; batch += 3)
        for (int g = -1; g < 6; g++) {
            struct limit limit = {.batch = batch, .next = batch + 3};
            struct max_batch found;
            int guess = g < 0 ? batch : guesses[g];
            cr_assert_eq(max_batch_find(&config, guess, run_up_to, &limit, &found), OK);
            cr_assert_eq(found.batch, batch, "guess %d: %d", guess, found.batch);
            cr_assert_eq(found.unit, 3);
            cr_assert_eq(found.next, batch < MOST ? batch + 3 : 0);
            cr_assert(limit.tried_good || !batch, "guess %d: %d was not run", guess, batch);
            cr_assert(limit.tried_bad || !found.next, "guess %d: %d was not run", guess, batch + 3);
            cr_assert_eq(found.peak, (uint64_t)batch);
            cr_assert(!batch || found.device == 1);
            cr_assert_leq(found.tries, g < 0 && batch ? 2 : ENOUGH, "%d with guess %d: %d runs",
                          batch, guess, found.tries);
        }
}

static int broken(void *context, const struct run_config *config, struct run_record *record) {
    (void)context, (void)config, (void)record;
    return fail(ERR_PEER, "no luck");
}

Test(max_batch, another_failure_ends_it, .timeout = 10) {
    struct run_config config = config_of(10);
    struct max_batch found;
    cr_assert_eq(max_batch_find(&config, 0, broken, NULL, &found), ERR_PEER);
    cr_assert_str_eq(error_message(), "no luck");
}
