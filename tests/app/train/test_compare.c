/* Runs compare with a fault in one mode or in one rank: the fault is found and named, and the
 * status is 3. With devices that run everything as late as allowed, compare finds nothing.
 *
 * The product has no hook for this. A job is started from /proc/self/exe, which is this test
 * itself. Its constructor sees the arguments of a job, changes the configuration as
 * PLANT=mode:rank:fault in the environment says, and continues like duet. */
#include <math.h>

#include "base/error.h"
#include "tests/app/train/config.h"
#include "train/compare/compare.h"
#include "train/compare/lockstep.h"

enum { V = 4, ANY = -1 };

/* ---- in a job ---- */

static int chunks_swapped;

/* Replaces the library's function: where planted, it adds chunk 0 in the order of chunk 1. */
#define plan_ring plan_right_ring
#include "allreduce/plans/ring.c"
#undef plan_ring
void plan_ring(struct plan *plan, const struct plan_config *config) {
    const struct range whole = {0, plan->count};
    const size_t chunk = range_part(whole, plan->n, 0, config->align).length;
    plan_right_ring(plan, config);
    for (int i = 0; chunks_swapped && i < plan->step_count && 2 * chunk <= plan->count; i++) {
        struct plan_step *s = &plan->steps[i];
        size_t at = s->dest_offset < chunk       ? s->dest_offset + chunk
                    : s->dest_offset < 2 * chunk ? s->dest_offset - chunk
                                                 : s->dest_offset;
        if (s->length) s->source_offset = s->dest_offset = at;
    }
}

static void plant(struct run_config *config, const char *fault) {
    chunks_swapped = !strcmp(fault, "chunk");
    if (!strcmp(fault, "late"))
        config->late = 1;
    else if (!strcmp(fault, "lr"))
        config->update.lr = nextafterf((float)config->update.lr, 1); /* one bit more */
    else if (!strcmp(fault, "seed"))
        config->seed++;
    else if (!strcmp(fault, "decay"))
        config->update.weight_decay = 1e-4;
    else if (!strncmp(fault, "memory ", 7))
        config->device_memory[0] = strtoull(fault + 7, NULL, 10) << 10,
        config->device_memory_count = 1;
}

/* Copies the memory file of the job, with the fault in it. */
static int faulty(int fd, const char *fault) {
    struct stat about;
    struct run_config config;
    int copy = memfd_create("faulty", 0);
    if (fstat(fd, &about) || ftruncate(copy, about.st_size)) return fd;
    char *from = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, fd, 0);
    memcpy(&config, from, sizeof config);
    plant(&config, fault);
    if (pwrite(copy, from, (size_t)about.st_size, 0) != about.st_size ||
        pwrite(copy, &config, sizeof config, 0) != sizeof config)
        return fd;
    return copy;
}

__attribute__((constructor)) static void become_a_job(int argc, char **argv) {
    char mode[16], fault[24], words[16];
    int rank;
    const char *planted = getenv("PLANT"), *mine = getenv("RANK");
    if (argc != 6 || strcmp(argv[1], "job")) return;
    if (planted && mine && sscanf(planted, "%15[^:]:%d:%23[^:]", mode, &rank, fault) == 3 &&
        (!strcmp(mode, "all") ||
         (!strncmp(argv[5], mode, strlen(mode)) && argv[5][strlen(mode)] == ':')) &&
        (rank == ANY || rank == atoi(mine))) {
        snprintf(words, sizeof words, "%d", faulty(atoi(argv[2]), fault));
        argv[2] = words;
    }
    _exit(job_main(argc - 2, argv + 2, NULL));
}

/* ---- the tests ---- */

static struct run_config config_of(int devices, const char *allreduce) {
    struct run_config config = config_on_cpu(MODE_DP, "mlp");
    put_data(200, 20);
    config.devices = devices;
    config.virtual_devices = V;
    config.batch_size = 30;
    config.epochs = 2;
    config.seed = 5;
    config.model.options.hidden[0] = 12;
    config.model.options.hidden_count = 1;
    snprintf(config.ddp.allreduce, sizeof config.ddp.allreduce, "%s", allreduce);
    return config;
}

/* Runs compare with this fault, which must end with this status, and returns the verdict of
 * `mode`. */
static struct verdict judged(const char *planted, enum run_mode mode,
                             const struct run_config *config, int status) {
    static struct comparison c; /* too large for a small stack */
    memset(&c, 0, sizeof c);
    struct job_result result;
    setenv("PLANT", planted, 1);
    int code = compare_run(&c, config, &result);
    cr_assert_eq(code, status ? ERR_CHECK : OK, "%s: %s", planted, error_message());
    if (status) cr_assert_eq(result.exit_status, status);
    struct verdict v = c.verdict[mode];
    if (status) {
        char words[64];
        snprintf(words, sizeof words, "step %d: the %s of %s on device %d", v.step,
                 v.in_gradient ? "gradient" : "value", c.run[mode].names[v.parameter], v.device);
        cr_assert(strstr(error_message(), words), "%s is not in: %s", words, error_message());
    }
    comparison_free(&c);
    return v;
}

CliTest(compare, nothing_planted, 120) {
    struct run_config config = config_of(4, "direct");
    cr_assert_eq(judged("", MODE_DP, &config, 0).kind, VERDICT_EQUAL);
    cr_assert_eq(judged("", MODE_DDP, &config, 0).kind, VERDICT_EQUAL);
}

CliTest(compare, a_mode_that_differs, 120) {
    SKIP_UNDER_THREAD();
    static const char *const names[] = {"single", "dp", "ddp"};
    struct run_config config = config_of(2, "oneshot");
    for (enum run_mode mode = test_short() ? MODE_DDP : MODE_DP; mode <= MODE_DDP; mode++) {
        char planted[32];
        snprintf(planted, sizeof planted, "%s:-1:lr", names[mode]);
        struct verdict v = judged(planted, mode, &config, 3);
        cr_assert(v.kind == VERDICT_DIFFERENT && v.step == 1 && !v.in_gradient && v.device == 0 &&
                  !v.among_replicas);
        /* other initial weights */
        snprintf(planted, sizeof planted, "%s:-1:seed", names[mode]);
        v = judged(planted, mode, &config, 3);
        cr_assert(v.kind == VERDICT_DIFFERENT && v.step == 0 && !v.in_gradient && v.parameter == 0);
        snprintf(planted, sizeof planted, "%s:-1:decay", names[mode]);
        v = judged(planted, mode, &config, 3);
        cr_assert(v.kind == VERDICT_DIFFERENT && v.step == 1 && !v.in_gradient);
    }
}

/* One rank of four differs. With another learning rate its replica drifts away; with another seed
 * its sampler brings other images, which changes the gradient of all. */
CliTest(compare, a_rank_that_differs, 120) {
    SKIP_UNDER_THREAD();
    struct run_config config = config_of(4, "direct");
    struct verdict v = judged("ddp:2:lr", MODE_DDP, &config, 3);
    cr_assert(v.kind == VERDICT_DIFFERENT && v.step == 1 && !v.in_gradient && v.device == 2 &&
              !v.among_replicas);
    v = judged("ddp:1:seed", MODE_DDP, &config, 3);
    cr_assert(v.kind == VERDICT_DIFFERENT && v.step == 0 && v.in_gradient && v.device == 0);
    /* equal bits with single are not promised here, but the replicas must agree */
    config.virtual_devices = VIRTUAL_OFF;
    v = judged("ddp:3:lr", MODE_DDP, &config, 3);
    cr_assert(v.kind == VERDICT_DIFFERENT && v.among_replicas && v.step == 1 && v.device == 3);
}

/* Lock step finds more than rounding: a rank that brings the gradient of other images. */
CliTest(compare, lock_step, 120) {
    SKIP_UNDER_THREAD();
    struct run_config config = config_of(4, "direct");
    config.virtual_devices = VIRTUAL_OFF;
    struct verdict v = judged("", MODE_DDP, &config, 0);
    cr_assert(v.kind == VERDICT_WITHIN && v.steps == 1 && v.worst > 0 && v.worst <= v.bound &&
              v.bits_apart_at >= 0);
    v = judged("ddp:1:seed", MODE_DDP, &config, 3);
    cr_assert(v.kind == VERDICT_BEYOND && v.worst > 0.01 && v.in_gradient);
}

/* Ring and tree have the bits of single and DP, even if each device has two segments and buckets
 * are cut anew. A chunk that is added in another chunk's order is found, whichever the two are. */
CliTest(compare, orders_of_allreduces, 240) {
    static const char *const algorithms[] = {"ring", "tree"};
    for (int devices = 3; devices <= (test_short() ? 3 : 5); devices++)
        for (int a = 0; a < 2; a++) {
            struct run_config config = config_of(devices, algorithms[a]);
            config.virtual_devices = devices == 4 ? 8 : devices;
            config.ddp.bucket_cap_mb = 0.01;
            config.dp.sharded_reduce = a;
            cr_assert_eq(judged("all:-1:late", MODE_DP, &config, 0).kind, VERDICT_EQUAL);
            cr_assert_eq(judged("", MODE_DDP, &config, 0).kind, VERDICT_EQUAL);
        }
    struct run_config config = config_of(4, "ring");
    struct verdict v = judged("ddp:-1:chunk", MODE_DDP, &config, 3);
    cr_assert(v.kind == VERDICT_DIFFERENT && v.step == 0 && v.in_gradient && !v.among_replicas);
}

/* Runs that diverged alike: their bits are equal, but that is no success. Gradients that are not
 * finite agree with nothing. */
CliTest(compare, diverged, 120) {
    SKIP_UNDER_THREAD();
    for (int i = 0; i < 2; i++) {
        struct run_config config = config_of(4, "tree");
        if (i) config.virtual_devices = VIRTUAL_OFF;
        static struct comparison c; /* too large for a small stack */
        memset(&c, 0, sizeof c);
        struct job_result result;
        char words[64];
        setenv("PLANT", "", 1);
        config.update.lr = 1e30;
        cr_assert_eq(compare_run(&c, &config, &result), ERR_CHECK);
        cr_assert_eq(result.exit_status, 3);
        const struct verdict *v = &c.verdict[MODE_DDP];
        cr_assert(v->kind == (i ? VERDICT_WITHIN : VERDICT_EQUAL));
        cr_assert(v->not_finite_at >= 1);
        snprintf(words, sizeof words, "not finite since step %d", v->not_finite_at);
        cr_assert(strstr(error_message(), words), "%s", error_message());
        comparison_free(&c);
    }
}

/* DDP on 4 devices pads 202 images to 204 and single does not: lock step compares only steps that
 * do the same work. */
CliTest(compare, off_with_an_odd_count, 120) {
    SKIP_UNDER_THREAD();
    struct run_config config = config_of(4, "direct");
    config.virtual_devices = VIRTUAL_OFF;
    /* With a batch of 202 an epoch is one step, so no step does the same work in both. */
    static const struct { int batch, points; } cases[] = {{29, 1}, {202, 0}};
    for (int i = 0; i < 2; i++) {
        put_data(202, 20);
        config.batch_size = cases[i].batch;
        struct verdict v = judged("", MODE_DDP, &config, 0);
        cr_assert(v.kind == VERDICT_WITHIN && v.steps == cases[i].points);
    }
}

/* One rank runs out of memory, at set-up or in a step, depending on how little it has. Its peers,
 * which wait for it, end long before --timeout, and the error names the rank. */
CliTest(compare, a_rank_without_memory, 120) {
    SKIP_UNDER_THREAD();
    struct run_config config = config_of(3, "direct");
    int failed = 0, went_well = 0;
    config.virtual_devices = 3;
    config.steps = 2;
    /* 6 MiB of parameters; memory comes in pieces of 2 MiB */
    config.model.options.hidden[0] = 2000;
    for (int kib = 2048; !went_well; kib += test_short() ? 8192 : 2048) {
        static struct comparison c; /* too large for a small stack */
        memset(&c, 0, sizeof c);
        struct job_result result;
        char planted[32];
        snprintf(planted, sizeof planted, "ddp:2:memory %d", kib);
        setenv("PLANT", planted, 1);
        int64_t start = now_ns();
        int code = compare_run(&c, &config, &result);
        went_well = code == OK;
        failed += code != OK;
        if (code) {
            cr_expect(result.exit_status == 1 &&
                          strstr(error_message(), "DDP: rank 2: out of memory on device 2"),
                      "%s", error_message());
            cr_expect(now_ns() - start < 60000000000, "the others waited for --timeout");
        }
        comparison_free(&c);
        cr_assert(kib < 1 << 20);
    }
    cr_assert_geq(failed, 2);
}

/* Every operation and copy runs as late as it may, so code that relies on an early completion fails
 * here. */
CliTest(compare, late_devices, 240) {
    static const char *const late[] = {"dp:-1:late", "ddp:-1:late", "ddp:2:late", "all:-1:late"};
    struct run_config config = config_of(4, "oneshot");
    /* The third makes one rank late. compare_run fails unless both modes agree. */
    for (int i = test_short() ? 2 : 0; i < 4; i++)
        cr_assert_eq(judged(late[i], MODE_DDP, &config, 0).kind, VERDICT_EQUAL, "%s", late[i]);
    /* the same with convolutions, dropout and every way of dp */
    config = config_of(4, "direct");
    snprintf(config.model.name, sizeof config.model.name, "convnet");
    config.batch_size = 12;
    config.steps = 3;
    for (int i = 0; i < 4; i++) {
        config.dp.loss_in_forward = i % 2;
        config.dp.output_device = i;
        config.dp.sharded_reduce = i > 1;
        cr_assert_eq(judged(late[i % 2], MODE_DP, &config, 0).kind, VERDICT_EQUAL, "way %d", i);
    }
}
