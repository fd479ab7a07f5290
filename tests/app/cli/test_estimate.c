/* Compares duet estimate with duet profile: computed and measured bytes are equal for every
 * built-in model. What cannot be computed is refused. */
#include "tests/app/cli/json.h"

static int same(const struct json *estimated, const struct json *measured, const char *path);

/* Each member of the estimate is in the measured object too, and equal. */
static int same_members(const struct json *estimated, const struct json *measured,
                        const char *path) {
    int all = 1;
    for (const struct json *e = estimated->child; e; e = e->next) {
        char below[256];
        snprintf(below, sizeof below, "%s/%s", path, e->key);
        if (!strcmp(e->key, "memory_capacity")) continue; /* no size was given */
        all &= same(e, json_find(measured, e->key), below);
    }
    return all;
}

static int same(const struct json *e, const struct json *m, const char *path) {
    if (m && e->kind == JSON_OBJECT && m->kind == JSON_OBJECT) return same_members(e, m, path);
    int equal = m && e->kind == m->kind && e->kind == JSON_NUMBER && e->number == m->number;
    cr_expect(equal, "%s: estimated %.17g, measured %.17g", path, e->number, m ? m->number : -1);
    return equal;
}

/* The bytes over each link, from device to device. */
static void compare_links(const struct json *estimated, const struct json *measured,
                          const char *words) {
    const struct json *e = json_at(estimated, "traffic"), *m = json_at(measured, "traffic");
    cr_expect(e->count > 0 && e->count == m->count, "%s: %d links, %d", words, e->count, m->count);
    for (e = e->child, m = m->child; e && m; e = e->next, m = m->next)
        for (const struct json *x = e->child, *y = m->child; x && y; x = x->next, y = y->next)
            cr_expect(!strcmp(x->key, y->key) && x->number == y->number &&
                          !strcmp(x->string ? x->string : "", y->string ? y->string : ""),
                      "%s: %s of a link: %.17g, %.17g", words, x->key, x->number, y->number);
}

/* Compares all that the estimate says of each device. measured_way "": one record. */
static void compare_devices(const struct json *estimated, const char *way,
                            const struct json *measured, const char *measured_way,
                            const char *words) {
    const struct json *e = json_at(estimated, "%s/per_device", way),
                      *m = json_at(measured, "%s/per_device", measured_way);
    cr_assert_eq(e->count, m->count);
    e = e->child;
    m = m->child;
    for (int d = 0; e; e = e->next, m = m->next, d++) {
        char path[300];
        snprintf(path, sizeof path, "%s: %s, device %d", words, way, d);
        cr_expect(json_find(e, "memory_at_peak_by_cause") && json_find(e, "phase_bytes"));
        cr_expect(same(e, m, path));
    }
}

static struct json *output_of(const char *command, const char *words) {
    cli_says(0, "", "%s %s --json j", command, words);
    return json_of("j");
}

/* Without a worker the next batch is always there in time, as it is in a longer run. */
static void check_ways(const char *words, int with_dp) {
    static const char *const ways[] = {"ddp", "dp", "dp_loss_in_forward"};
    struct json *estimated = output_of("estimate", words),
                *measured = output_of("profile --workers 0", words);
    for (int i = 0; i < (with_dp ? 3 : 1); i++) {
        compare_devices(estimated, ways[i], measured, ways[i], words);
        compare_links(json_at(estimated, ways[i]), json_at(measured, ways[i]), words);
    }
    cr_expect_eq(json_at(estimated, "ddp/computed")->integer, 1);
    for (int i = 0, n = json_at(measured, "ddp/bucket_sizes")->count; i < n; i++)
        cr_expect_eq(json_int(estimated, "ddp/bucket_sizes/%d", i),
                     json_int(measured, "ddp/bucket_sizes/%d", i), "%s: bucket %d", words, i);
    json_free(estimated);
    json_free(measured);
}

/* A model, and what else can change memory or traffic: uneven and short batches, virtual devices,
 * each optimizer, each algorithm, BatchNorm's buffers, where DP computes and reduces. */
#define SMALL "--dataset random --samples 42 --steps 3 "
#define WITH_NORMS                                                                       \
    "--dataset random --samples 8 --steps 2 --model resnet18 --shape 1x8x8 --devices 2 " \
    "--batch-size 4 "
#define PICTURES "--dataset synthetic --samples 42 --steps 3 "
static const char *const sets[] = {
    PICTURES "--model lenet --devices 3 --batch-size 20 --optimizer adam --virtual-devices off",
    PICTURES "--model lenet --devices 2 --batch-size 20 --no-sync-steps 2",
    PICTURES "--model convnet --devices 3 --batch-size 20 --optimizer adadelta --allreduce tree",
    PICTURES "--model mlp --devices 2 --virtual-devices 4 --batch-size 20 --allreduce ring "
             "--bucket-cap-mb 0.1 --momentum 0.9",
    SMALL "--model simple --devices 4 --batch-size 20 --allreduce naive --loss mse --no-overlap",
    SMALL "--model complex --devices 3 --batch-size 20 --allreduce oneshot --dp-reduce sharded "
          "--optimizer adamw",
    SMALL "--model branches --devices 3 --batch-size 20 --allreduce fused --output-device 1 "
          "--find-unused-parameters --no-pin-memory",
    WITH_NORMS};
enum { SETS = sizeof sets / sizeof *sets };

CliTest(cli_estimate, is_what_profile_measures, 120) {
    for (int i = 0; i < SETS; i += test_short() ? 3 : 1)
        check_ways(sets[i], 1);
    check_ways(WITH_NORMS "--sync-bn", 0);
}

CliTest(cli_estimate, of_single, 60) {
    const char *words =
        SMALL "--model complex --batch-size 20 --devices 3 --allreduce ring --virtual-devices 3";
    struct json *estimated = output_of("estimate", words),
                *measured = output_of("train --workers 0 --device cpu --trace t", words);
    compare_devices(estimated, "single", measured, "", words);
    json_free(estimated);
    json_free(measured);
}

/* If a run needs more memory than there is, the estimate says what the run says. */
CliTest(cli_estimate, of_what_does_not_fit, 60) {
    const char *words = "--model simple --dataset random --classes 20000 --devices 4 --steps 2 "
                        "--samples 512 --device-memory 48M";
    struct json *estimated = output_of("estimate", words);
    cli_says(1, "", "profile %s --workers 0 --json m", words);
    struct json *measured = json_of("m");
    cr_expect_str_eq(json_at(estimated, "dp/does_not_fit")->string,
                     json_at(measured, "dp/does_not_fit")->string);
    compare_devices(estimated, "ddp", measured, "ddp", words);
    json_free(estimated);
    json_free(measured);
}

CliTest(cli_estimate, says_that_it_is_computed, 60) {
    cli_says(0,
             "computed, not measured|what this means (all of it computed)|single: does not fit|"
             "DDP: fits, with at most |!ms a step|!samples/s",
             "estimate --details --devices 4 --optimizer adam --model resnet18 --batch-size 64 "
             "--dataset random --shape 3x224x224 --classes 1000 --device-memory 6600M");
}

/* A built-in model, described by its numbers: its two tensors have 100 elements each, like the two
 * pieces of 200. All that does not follow from its layers is the same. */
CliTest(cli_estimate, of_a_described_model, 60) {
    static const char *const same_keys[] = {"memory_at_peak_by_cause/params",
                                            "memory_at_peak_by_cause/grads",
                                            "memory_at_peak_by_cause/optimizer",
                                            "memory_at_peak_by_cause/input",
                                            "memory_at_peak_by_cause/gathered_output",
                                            "memory_at_peak_by_cause/comm",
                                            "bytes_in",
                                            "bytes_out"};
    static const char *const ways[] = {"single", "dp", "dp_loss_in_forward", "ddp"};
    const char *sizes = "--shape 1 --classes 100 --devices 3 --batch-size 24 --steps 3 --optimizer "
                        "adam";
    struct json *house = output_of("estimate --model simple --dataset random", sizes),
                *described = output_of("estimate --params 0.2K --activations 4K", sizes);
    for (int way = 0; way < 4; way++)
        for (int d = 0; d < (way ? 3 : 1); d++) {
            const struct json *x = json_at(described, "%s/per_device/%d", ways[way], d),
                              *y = json_at(house, "%s/per_device/%d", ways[way], d);
            for (int i = 0; i < 8; i++)
                cr_expect_eq(json_int(x, "%s", same_keys[i]), json_int(y, "%s", same_keys[i]),
                             "%s, device %d: %s", ways[way], d, same_keys[i]);
        }
    /* 4 KiB for each of 24 samples, their 100 outputs, and the loss's memory */
    int64_t held = json_int(described, "single/per_device/0/memory_at_peak_by_cause/activations");
    cr_expect(held >= 24 * 4096 + 24 * 100 * 4 && held < 24 * 4096 + 64 * 1024, "%lld",
              (long long)held);
    json_free(house);
    json_free(described);
}

/* What PyTorch holds is the same whether Duet ran or not, and fits or does not where DP does. How
 * near it is to PyTorch: tests/app/train/test_as_pytorch.c. */
CliTest(cli_estimate, as_pytorch, 60) {
    static const char *const words = "--model simple --dataset random --classes 20000 --devices 4 "
                                     "--steps 2 --samples 512 --batch-size 64 --as pytorch";
    cli_says(0,
             "PyTorch's DataParallel: does not fit: it holds |PyTorch's DDP: fits, with at most |"
             "\nDP at its peak  ",
             "estimate %s --device-memory 18M --json e", words);
    cli_says(0, "\nsaved by autograd ", "profile %s --workers 0 --device cpu --json p", words);
    struct json *estimated = json_of("e"), *profiled = json_of("p");
    for (int d = 0; d < 4; d++)
        same(json_at(estimated, "ddp/as_pytorch/%d", d), json_at(profiled, "ddp/as_pytorch/%d", d),
             "ddp/as_pytorch");
    /* The outputs of 64 samples four times: as such, as log-probabilities, and two gradients. */
    cr_expect_eq(json_int(profiled, "dp/as_pytorch/0/memory_peak_by_cause/gathered_output"),
                 4LL * 64 * 20000 * 4);
    json_free(estimated);
    json_free(profiled);
}

/* More outputs than a number of --classes can name: 512 tokens of 50257 classes, in floats. */
CliTest(cli_estimate, of_outputs_by_token, 60) {
    struct json *j = output_of("estimate", "--params 124M --activations 1M --shape 512 --classes "
                                           "512x50257 --devices 2 --batch-size 4 --steps 2");
    int64_t outputs = 4LL * 512 * 50257 * 4;
    int64_t held = json_int(j, "dp/per_device/0/memory_peak_by_cause/gathered_output");
    cr_expect(held >= 2 * outputs && held < 2 * outputs + (1 << 20), "%lld", (long long)held);
    json_free(j);
}

CliTest(cli_estimate, no_line_is_wider_than_80, 60) {
    static const char *const lines[] = {
        "--gpu v100 --machine nvlink-4 --model resnet18",
        "--details --devices 8 --params 25.6M --shape 3x224x224 --classes 1000 --activations 90M "
        "--device-memory 4G"};
    for (int i = 0; i < 2; i++) {
        char *out = cli_output("estimate %s", lines[i]);
        cr_expect(plain_lines(out), "%s", out);
        free(out);
    }
}

/* Building a model shows what it takes. No head of a table is printed before the error. */
CliTest(cli_estimate, a_model_that_does_not_suit_its_samples, 60) {
    cli_put("net.duet", "duet 1\ninput %x: f32[N, 10]\nparameter w: f32[4, 10]\n"
                        "%1: f32[N, 4] = linear(%x, w, none)\nreturn %1\n");
    cli_fails(2, "the graph is for samples of 10, the data has 12",
              "estimate --model net.duet --dataset random --shape 12 --classes 4");
}

/* torchvision's nets have their own samples and classes, and need the memory of the model files
 * that duet.export writes from them, with torch 2.15 and a batch of 64. */
CliTest(cli_estimate, nets_of_torchvision, 60) {
    static const char *const names[] = {"torchvision-resnet18", "vgg16", "resnet50"};
    static const int64_t exported[] = {0, 5261924096, 5790465280};
    for (int i = 0; i < 3; i++) {
        cli_well("estimate --model %s --batch-size 64 --devices 1 --json e", names[i]);
        struct json *j = json_of("e");
        cr_expect_str_eq(json_text(j, "runs/0/dataset"), "random");
        cr_expect(json_int(j, "runs/0/channels") == 3 && json_int(j, "runs/0/height") == 224 &&
                      json_int(j, "runs/0/classes") == 1000,
                  "%s", names[i]);
        if (exported[i])
            cr_expect_eq(json_int(j, "runs/0/per_device/0/memory_peak"), exported[i], "%s",
                         names[i]);
        json_free(j);
    }
}

CliTest(cli_estimate, refuses_what_cannot_be_computed, 60) {
    cli_fails(2, "--device: cuda: only emulated devices are", "estimate --device cuda");
    cli_fails(2, "--allreduce: nccl: the bytes that it moves", "estimate --allreduce nccl");
    cli_fails(2, "--join: its ranks differ", "estimate --join");
    cli_fails(2, "--data-dir: .: its files are not read", "estimate --data-dir .");
    cli_fails(2, "give --shape and --classes", "estimate --params 1M");
    cli_fails(2, "--model mlp is given too",
              "estimate --params 1M --shape 10 --classes 2 --model mlp");
    cli_fails(2, "--params: '1': give a count from 2", "estimate --params 1");
    cli_fails(2, "--params: '3B': give a count", "estimate --params 3B --shape 10 --classes 2");
    cli_fails(2, "give --params N", "estimate --model described");
    cli_fails(2, "--classes: '2x': give the tokens", "estimate --params 1M --classes 2x");
    cli_fails(2, "at most 2^31 - 1", "estimate --params 1M --shape 10 --classes 65536x65536");
    cli_fails(2, "--classes: 2x5: only a model of --params", "train --classes 2x5");
    cli_fails(2, "--as: 'tf'", "estimate --as tf");
    cli_fails(2, "--as: no effect with --gpu", "estimate --as pytorch --gpu v100");
}

/* Where neither a model nor data are named it is the model of the lessons: DP's outputs weigh on
 * device 0, and DDP has several buckets. */
CliTest(cli_estimate, model_of_the_lessons, 60) {
    struct json *one = output_of("estimate", ""),
                *lenet = output_of("estimate", "--dataset random"),
                *uncut = output_of("estimate", "--model wide --bucket-cap-mb 2");
    cr_expect_str_eq(json_text(one, "dp/model"), "wide");
    cr_expect_eq(json_int(one, "dp/devices"), 4);
    cr_expect_geq(json_int(one, "dp/per_device/0/memory_at_peak_by_cause/gathered_output"),
                  2 * 256 * 2000 * (int)sizeof(float));
    cr_expect_eq(json_at(one, "ddp/bucket_sizes")->count, 3);
    cr_expect_eq(json_at(uncut, "ddp/bucket_sizes")->count, 2);
    cr_expect_str_eq(json_text(uncut, "ddp/dataset"), "random");
    cr_expect_eq(json_int(uncut, "ddp/devices"), 2);
    cr_expect_str_eq(json_text(lenet, "dp/model"), "lenet");
    json_free(one);
    json_free(lenet);
    json_free(uncut);
}
