/* Compares duet profile with an independent count of the bytes that a step of DP and of DDP moves
 * and that each device holds. It uses only the model's shapes and the algorithms' formulas. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

/* linear 784 -> 20, linear 20 -> 10. Each parameter begins at a multiple of 64 elements. */
enum { HIDDEN = 20, CLASSES = 10, INPUTS = 784, ALIGNED = 64, PARAMETERS = 4 };
static const int64_t COUNTS[PARAMETERS] = {INPUTS * HIDDEN, HIDDEN, HIDDEN *CLASSES, CLASSES};
enum { DEVICES = 4, STEPS = 4, BATCH = 60, EACH = BATCH / DEVICES };
enum { PIXELS = INPUTS * 4, LABEL = 4, OUTPUT = CLASSES * 4 }; /* bytes of one sample */
enum {
    LOSS_AND_HITS = 16
};                        /* what a device sends with the loss in forward: a double and a count */
enum { STEP_BLOCK = 72 }; /* what the host tells every device in each step */

static int64_t round_up(int64_t n, int64_t to) {
    return (n + to - 1) / to * to;
}

/* A device that takes its batches from the host has room for the next one as well. */
enum { BATCHES = 2 };

/* Bytes of all parameters, and likewise of all gradients. */
static int64_t model_bytes(void) {
    int64_t sum = 0;
    for (int i = 0; i < PARAMETERS; i++)
        sum += round_up(COUNTS[i], ALIGNED) * 4;
    return sum;
}

/* Memory is handed out in pieces of 256 bytes. */
static int64_t held(int64_t bytes) {
    return round_up(bytes, 256);
}

static void check_bytes(const struct json *root, const char *run, int d, int64_t in, int64_t out) {
    const struct json *x = json_at(root, "%s/per_device/%d", run, d);
    cr_expect_eq(json_int(x, "bytes_in"), in * STEPS, "%s: into device %d: %ld, not %ld", run, d,
                 (long)json_int(x, "bytes_in") / STEPS, (long)in);
    cr_expect_eq(json_int(x, "bytes_out"), out * STEPS, "%s: out of device %d: %ld, not %ld", run,
                 d, (long)json_int(x, "bytes_out") / STEPS, (long)out);
}

static void check_held(const struct json *root, const char *run, int d, const char *cause,
                       int64_t bytes) {
    static const char *const when[] = {"memory_now_by_cause", "memory_at_peak_by_cause"};
    for (int i = 0; i < 2; i++) {
        int64_t got = json_int(root, "%s/per_device/%d/%s/%s", run, d, when[i], cause);
        cr_expect_eq(got, bytes, "%s, device %d: %s: %ld, not %ld", run, d, cause, (long)got,
                     (long)bytes);
    }
}

static struct json *profile(const char *more) {
    cli_well("profile --quiet --devices %d --dataset synthetic --samples 300 --model mlp "
             "--mlp-hidden %d --batch-size %d --steps %d --json j %s",
             DEVICES, HIDDEN, BATCH, STEPS, more);
    return json_of("j");
}

/* With the loss in forward labels go to the devices and one loss comes back from each; without it
 * outputs come back and their gradient goes out again. */
static void check_dp(const struct json *root, const char *run, int loss_in_forward) {
    int64_t s = model_bytes(), others = DEVICES - 1;
    int64_t there = EACH * PIXELS + s + (loss_in_forward ? EACH * LABEL : EACH * OUTPUT);
    int64_t back = s + (loss_in_forward ? LOSS_AND_HITS : EACH * OUTPUT);
    check_bytes(root, run, 0, BATCH * (PIXELS + LABEL) + STEP_BLOCK + others * back,
                others * there);
    for (int d = 1; d < DEVICES; d++)
        check_bytes(root, run, d, there + STEP_BLOCK, back);
    for (int d = 0; d < DEVICES; d++) {
        int rows = d ? EACH : BATCH;
        check_held(root, run, d, "params", s);
        check_held(root, run, d, "grads", s);
        check_held(root, run, d, "optimizer", d ? 0 : 2 * s); /* adam's two means */
        check_held(root, run, d, "input",
                   (d ? 1 : BATCHES) * (held(rows * PIXELS) + held(rows * LABEL)));
    }
}

static void check_ddp(const struct json *root, int64_t in_0, int64_t in_others) {
    int64_t s = model_bytes(), own = EACH * (PIXELS + LABEL) + STEP_BLOCK;
    for (int d = 0; d < DEVICES; d++) {
        check_bytes(root, "ddp", d, own + (d ? in_others : in_0), d ? in_others : in_0);
        check_held(root, "ddp", d, "params", s);
        check_held(root, "ddp", d, "grads", s);
        check_held(root, "ddp", d, "optimizer", 2 * s);
        check_held(root, "ddp", d, "input", BATCHES * (held(EACH * PIXELS) + held(EACH * LABEL)));
        check_held(root, "ddp", d, "gathered_output", 0);
    }
}

/* What a rank takes and gives in one allreduce of S bytes over W ranks: 2 (W-1)/W S with ring and
 * direct; (W-1) S with oneshot, where everyone reads everything; with naive that is rank 0's part,
 * and the others give S and take S. */
CliTest(cli_profile_counts, by_formula, 120) {
    int64_t s = model_bytes(), w = DEVICES;
    const struct {
        const char *name;
        int64_t in_0, in_others;
    } algorithms[] = {{"ring", 2 * (w - 1) * s / w, 2 * (w - 1) * s / w},
                      {"direct", 2 * (w - 1) * s / w, 2 * (w - 1) * s / w},
                      {"oneshot", (w - 1) * s, (w - 1) * s},
                      {"naive", (w - 1) * s, s}};
    for (size_t i = 0; i < sizeof algorithms / sizeof *algorithms; i++) {
        char more[64];
        snprintf(more, sizeof more, "--optimizer adam --allreduce %s", algorithms[i].name);
        struct json *root = profile(more);
        check_dp(root, "dp", 0);
        check_dp(root, "dp_loss_in_forward", 1);
        check_ddp(root, algorithms[i].in_0, algorithms[i].in_others);
        json_free(root);
    }
}

/* What each device's own streams moved adds up to what came into all devices. */
CliTest(cli_profile_counts, phases_add_up, 120) {
    static const char *const runs[] = {"dp", "dp_loss_in_forward", "ddp"};
    struct json *root = profile("");
    for (int run = 0; run < 3; run++) {
        int64_t moved = 0, in = 0;
        for (int d = 0; d < DEVICES; d++) {
            const struct json *x = json_at(root, "%s/per_device/%d", runs[run], d);
            in += json_int(x, "bytes_in");
            for (const struct json *p = json_at(x, "phase_bytes")->child; p; p = p->next)
                moved += strcmp(p->key, "none") ? p->integer : 0; /* reading logs is not training */
        }
        cr_expect_eq(moved, in, "%s: %ld moved, %ld came in", runs[run], (long)moved, (long)in);
    }
    json_free(root);
}
