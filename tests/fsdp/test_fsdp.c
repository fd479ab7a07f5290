/* Sharded data parallel: units and shards as integers, formulas for memory and bytes, and ranks
 * that fail or differ. Whole runs are jobs of this program. (tests/app/cli/test_same_bits.c
 * compares the bits with those of a single device.) */
#include <unistd.h>

#include "base/error.h"
#include "fsdp/units.h"
#include "tests/app/cli/data.h"
#include "tests/harness/scratch.h"
#include "train/compare/compare.h"
#include "train/files/resume.h"

/* The rank that PLANT names dies after some milliseconds. */
__attribute__((constructor)) static void become_a_job(int argc, char **argv) {
    const char *planted = getenv("PLANT"), *mine = getenv("RANK");
    if (argc != 6 || strcmp(argv[1], "job")) return;
    if (planted && mine && atoi(planted) == atoi(mine))
        ualarm(1000u * (unsigned)atoi(strchr(planted, ':') + 1), 0);
    _exit(job_main(argc - 2, argv + 2, NULL));
}

static void folder_make(void) {
    scratch_make();
    cr_assert_eq(chdir(folder), 0);
    unsetenv("PLANT");
}

/* ---- units ---- */

static const struct param_spec specs[] = {
    {.name = "a.weight", .rank = 2, .dims = {30, 10}},
    {.name = "a.bias", .rank = 1, .dims = {30}},
    {.name = "b.0.weight", .rank = 2, .dims = {7, 30}, .frozen = 1},
    {.name = "b.0.bias", .rank = 1, .dims = {7}},
    {.name = "b.1.weight", .rank = 2, .dims = {100, 7}},
    {.name = "W", .rank = 2, .dims = {5, 5}},
    {.name = "bias", .rank = 1, .dims = {5}},
    {.name = "c.f.weight", .rank = 2, .dims = {10, 100}},
    {.name = "c.g.weight", .rank = 1, .dims = {20}}};
enum { SPECS = sizeof specs / sizeof *specs };

/* Whatever the cut: each element of each parameter is in the shard of one rank, and no two are at
 * one address. */
static void check_shards(const struct fsdp_units *u, const struct param_set *set) {
    for (int r = 0; r < u->ranks; r++) {
        char *taken = calloc(u->all, 1);
        for (int i = 0; i < set->count; i++) {
            size_t begins, count, at = fsdp_shard_of(u, &set->param[i], r, &begins, &count);
            cr_assert(at + count <= (set->param[i].spec->frozen ? u->all : u->trained));
            for (size_t k = 0; k < count; k++)
                cr_assert_eq(taken[at + k]++, 0);
            size_t last = 0;
            for (int q = 0; q < r; q++) {
                size_t from, n;
                fsdp_shard_of(u, &set->param[i], q, &from, &n);
                last += n;
            }
            if (count) cr_assert_eq(begins, last);
            if (r + 1 == u->ranks) cr_assert_eq(last + count, set->param[i].count);
        }
        free(taken);
    }
}

Test(fsdp, units_and_shards, .timeout = 30) {
    static const struct {
        const char *words;
        int count, of[SPECS];
    } cuts[] = {{"", 6, {0, 0, 1, 1, 2, 3, 3, 4, 5}},
                {"0.0001", 6, {0, 0, 1, 1, 2, 3, 3, 4, 5}},
                {"0.0018", 5, {0, 0, 0, 0, 1, 2, 2, 3, 4}},
                {"0.0039", 2, {0, 0, 0, 0, 0, 1, 1, 1, 1}}, /* the block c is no larger */
                {"1", 1, {0}},
                {"b.1,a", 3, {1, 1, 2, 2, 0, 2, 2, 2, 2}},
                {"b,W", 3, {2, 2, 0, 0, 0, 1, 2, 2, 2}}};
    struct device *device;
    struct param_set set;
    const struct device_config config = {.kind = DEVICE_DRY, .devices = 1, .memory_bytes = 1 << 20};
    cr_assert_eq(device_open(&device, &config), OK);
    cr_assert_eq(param_set_init_apart(&set, device, specs, SPECS), OK);
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++)
        for (int ranks = 1; ranks <= 8; ranks++) {
            struct fsdp_units u;
            cr_assert_eq(fsdp_units_cut(&u, &set, ranks, cuts[c].words), OK, "%s", error_message());
            cr_assert_eq(u.count, cuts[c].count, "%s: %d units", cuts[c].words, u.count);
            cr_assert_arr_eq(u.of, cuts[c].of, sizeof cuts[c].of);
            check_shards(&u, &set);
            fsdp_units_free(&u);
        }
    struct fsdp_units u;
    cr_assert_eq(fsdp_units_cut(&u, &set, 2, "a,d"), ERR_USAGE);
    cr_assert(strstr(error_message(), "'d'"));
    fsdp_units_free(&u);
    param_set_free(&set);
    device_close(device);
}

/* ---- runs ---- */

enum { OPTIMIZER, GRADIENTS, PARAMETERS };

static struct run_config config_of(int devices, const char *model) {
    struct run_config config;
    put_data(160, 20);
    run_config_default(&config);
    snprintf(config.device, sizeof config.device, "cpu");
    snprintf(config.model.name, sizeof config.model.name, "%s", model);
    snprintf(config.data.folder, sizeof config.data.folder, "d");
    config.mode = MODE_FSDP;
    config.modes = 1u << MODE_SINGLE | 1u << MODE_FSDP;
    config.devices = devices;
    config.batch_size = 32;
    config.epochs = 1;
    config.quiet = config.spans = 1;
    return config;
}

static void run(const struct run_config *config, struct run_record *record, int code) {
    struct job_result result;
    memset(record, 0, sizeof *record);
    cr_assert_eq(job_run(config, record, &result), code, "%s", error_message());
}

/* This many bytes; pads are a smaller part than this. */
static void near(uint64_t bytes, double wanted, const char *what) {
    cr_assert(bytes >= wanted && bytes < 1.02 * wanted, "%s: %g of %g", what, (double)bytes,
              wanted);
}

/* mlp of 784-512-512-10: layers of 1.5, 1 and 0.02 MiB, each a unit. */
Test(fsdp, memory_and_bytes_are_those_of_the_formulas, .timeout = 120, .init = folder_make,
     .fini = scratch_remove) {
    enum { W = 4, STEPS = 5 };
    const double u[3] = {4 * 785 * 512., 4 * 513 * 512., 4 * 513 * 10.}, all = u[0] + u[1] + u[2];
    const double values[] = {all, all, all / W + u[0] + u[1]},
                 grads[] = {all, all / W + u[0] + u[1], all / W + u[0] + u[1]},
                 grown = 4. * 4 * 1344, /* the last unit, with the pads of its shards */
        sent = u[0] + u[1] + grown,
                 /* the last two units are still in memory at the turn and are not gathered again */
        moved[] = {2 * sent, 2 * sent, 3 * sent - u[1] - grown};
    for (int shard = OPTIMIZER; shard <= PARAMETERS; shard++) {
        struct run_config config = config_of(W, "mlp");
        struct run_record record;
        config.model.options.hidden_count = 2;
        config.model.options.hidden[0] = config.model.options.hidden[1] = 512;
        config.fsdp.shard = shard;
        snprintf(config.fsdp.units, sizeof config.fsdp.units, "0.01");
        config.update.momentum = 0.9;
        config.evaluate = 0;
        run(&config, &record, OK);
        for (int d = 0; d < W; d++) {
            const struct ledger *memory = &record.device[d].memory;
            double bytes = (double)record.device[d].phase_bytes[PHASE_REPLICATE] +
                           (double)record.device[d].phase_bytes[PHASE_REDUCE];
            near(memory->peak[MEM_PARAMS], values[shard], "values");
            near(memory->peak[MEM_GRADS], grads[shard], "gradients");
            near(memory->peak[MEM_OPTIMIZER], all / W, "optimizer");
            cr_assert_eq(bytes, STEPS * moved[shard] * (W - 1) / W, "%g bytes moved", bytes);
        }
        record_free(&record);
    }
}

/* The first two rules of fsdp_units_cut keep what a block uses out of order from staying gathered.
 * So a rank holds shards, two slots of whole units, and what a rank of DDP holds besides. */
Test(fsdp, the_peak_is_that_of_the_formula, .timeout = 240, .init = folder_make,
     .fini = scratch_remove) {
    static const struct {
        const char *name;
        struct sample_shape shape;
    } models[] = {{"mlp", {1, 28, 28}}, {"lenet", {1, 28, 28}}, {"resnet18", {3, 8, 8}}};
    enum { W = 4 };
    for (int i = 0; i < (test_short() ? 2 : 3); i++) {
        double rest = 0;
        for (int shard = OPTIMIZER - 1; shard <= PARAMETERS; shard++) {
            struct run_config config = config_of(W, models[i].name);
            struct run_record record;
            snprintf(config.data.name, sizeof config.data.name, "random");
            config.data.folder[0] = 0;
            config.data.samples = 64;
            config.model.options.sample = models[i].shape;
            config.mode = shard < 0 ? MODE_DDP : MODE_FSDP;
            config.fsdp.shard = shard < 0 ? 0 : shard;
            config.update.momentum = 0.9;
            run(&config, &record, OK);
            const struct ledger *memory = &record.device[1].memory;
            double all = 0, slots[2] = {0, 0};
            for (int u = 0; u < record.bucket_count; u++) {
                double bytes = (double)record.bucket_bytes[u];
                all += bytes;
                slots[u % 2] = bytes > slots[u % 2] ? bytes : slots[u % 2];
            }
            double part = all / W + slots[0] + slots[1];
            double wanted = rest + all / W + (shard == PARAMETERS ? part : all) +
                            (shard == OPTIMIZER ? all : part);
            if (shard < 0)
                rest = (double)(memory->peak[MEM_ACTIVATIONS] + memory->peak[MEM_INPUT] +
                                memory->peak[MEM_WORKSPACE]);
            else
                near(memory->total_peak, wanted, models[i].name);
            record_free(&record);
        }
    }
}

/* A device that is too small for the model. */
Test(fsdp, trains_what_ddp_cannot_hold, .timeout = 120, .init = folder_make,
     .fini = scratch_remove) {
    struct run_config config = config_of(4, "mlp");
    struct run_record record;
    config.model.options.hidden_count = 2;
    config.model.options.hidden[0] = config.model.options.hidden[1] = 1024;
    config.update.optimizer = OPTIMIZER_ADAM;
    config.device_memory[0] = 22 << 20;
    config.device_memory_count = 1;
    config.mode = MODE_DDP;
    run(&config, &record, ERR_MEMORY);
    config.mode = MODE_FSDP;
    run(&config, &record, OK);
    record_free(&record);
}

Test(fsdp, goes_on_elsewhere, .timeout = 120, .init = folder_make, .fini = scratch_remove) {
    static const struct {
        enum run_mode mode;
        int devices, shard;
    } parts[][2] = {{{MODE_FSDP, 4, PARAMETERS}, {MODE_SINGLE, 1, 0}},
                    {{MODE_DDP, 2, 0}, {MODE_FSDP, 4, PARAMETERS}},
                    {{MODE_FSDP, 2, GRADIENTS}, {MODE_FSDP, 4, OPTIMIZER}}};
    double whole[16];
    for (int i = -1; i < 3; i++)
        for (int part = 0; part < (i < 0 ? 1 : 2); part++) {
            struct run_config config = config_of(i < 0 ? 1 : parts[i][part].devices, "lenet");
            struct run_record record;
            config.mode = i < 0 ? MODE_SINGLE : parts[i][part].mode;
            config.fsdp.shard = i < 0 ? 0 : parts[i][part].shard;
            config.virtual_devices = 4;
            config.update.optimizer = OPTIMIZER_ADAM;
            config.update.lr = 0.001;
            config.epochs = 2;
            config.steps = i >= 0 && !part ? 4 : 0;
            if (i >= 0) snprintf(part ? config.files.resume : config.files.checkpoint, 16, "ck");
            run(&config, &record, OK);
            for (int k = 0; k < record.steps; k++) {
                if (i < 0) whole[k] = record.losses[k];
                cr_assert_eq(record.losses[k], whole[part * 4 + k], "pair %d: step %d", i, k);
            }
            cr_assert_eq(record.steps, i < 0 ? 10 : part ? 6 : 4);
            record_free(&record);
        }
}

/* The job ends, and names the rank at fault. */
Test(fsdp, ranks_that_die, .timeout = 120, .init = folder_make, .fini = scratch_remove) {
    for (int i = 0; i < (test_short() ? 2 : 12); i++) {
        struct run_config config = config_of(4, "lenet");
        struct run_record record;
        char planted[32];
        snprintf(planted, sizeof planted, "%d:%d", i % 4, 20 + 37 * i % 300);
        setenv("PLANT", planted, 1);
        config.epochs = 100000;
        config.fsdp.shard = i % 3;
        config.timeout = 60;
        struct job_result result;
        memset(&record, 0, sizeof record);
        cr_assert(job_run(&config, &record, &result), "%s", planted);
        char words[32];
        snprintf(words, sizeof words, "rank %d", i % 4);
        cr_assert(strstr(error_message(), words) && !strstr(error_message(), "bucket"), "%s: %s",
                  planted, error_message());
        record_free(&record);
    }
}
