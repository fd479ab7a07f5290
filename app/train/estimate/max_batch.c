/* Searches for the largest batch: see max_batch.h. It works in multiples of the unit. */
#include "train/estimate/max_batch.h"

#include <string.h>

#include "base/error.h"
#include "train/estimate/estimate.h"
#include "train/shared_data.h"

enum { LARGEST = 1 << 24 }; /* samples: the limit of --batch-size */

struct search {
    const struct run_config *config;
    struct max_batch *out;
    int good, bad; /* the largest known to fit, and the smallest known not to fit */
};

static int try_one(struct search *s, int n) {
    struct run_config c = *s->config;
    struct run_record *record;
    CHECK(record_new(&record));
    c.batch_size = n * s->out->unit;
    c.batch_per_device = 0;
    if (!c.steps || c.steps > MAX_BATCH_STEPS) c.steps = MAX_BATCH_STEPS;
    c.data.workers = 0; /* else a late second batch might not be counted */
    int code = estimate_run(&c, record);
    if (!code) s->good = n;
    if (code == ERR_MEMORY) s->bad = n;
    record_delete(record);
    return code == ERR_MEMORY ? OK : code;
}

/* As long as everything fits, the size is doubled: the limit may be far below `above`. */
static int search(struct search *s, int above, int guess) {
    s->bad = above;
    if (guess > 0 && guess < above) CHECK(try_one(s, guess));
    if (guess > 0 && s->good == guess && guess + 1 < above) CHECK(try_one(s, guess + 1));
    while (s->good + 1 < s->bad) {
        int twice = 2 * s->good + 1, middle = s->good + (s->bad - s->good) / 2;
        CHECK(try_one(s, s->bad == above && twice < middle ? twice : middle));
    }
    return OK;
}

int max_batch_find(const struct run_config *config, int guess, struct max_batch *out) {
    struct search s = {.config = config, .out = out};
    struct dataset set;
    int v = run_virtual_devices(config), most;
    memset(out, 0, sizeof *out);
    CHECK(run_open_set(config, &set, 1));
    out->samples = set.count;
    dataset_free(&set);
    out->unit = v ? v : run_devices(config);
    most = (out->samples < LARGEST ? out->samples : LARGEST) / out->unit;
    CHECK(search(&s, most + 1, guess / out->unit));
    out->batch = s.good * out->unit;
    out->next = s.bad <= most ? s.bad * out->unit : 0;
    return OK;
}
