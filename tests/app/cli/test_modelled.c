/* Tests --gpu: modelled times are marked and the same in each run; wrong input gets one line. */
#include <math.h>

#include "tests/app/cli/data.h"
#include "tests/app/cli/run.h"
#include "tests/app/cli/trace.h"

/* Mixed precision takes less time and memory than float32, TF32 in products less time than without;
 * what nobody has measured is marked. */
Test(modelled, precisions, .init = cli_folder_make, .fini = cli_folder_remove, .timeout = 60) {
    static const struct {
        const char *words, *says;
    } asked[] = {{"fp32 --model resnet50 --shape 3x224x224", "; precision fp32"},
                 {"default --model resnet50 --shape 3x224x224", "host pytorch: times"},
                 {"amp --model resnet50 --shape 3x224x224", "allreduce moves: 97.5 MiB each"},
                 {"default --model bert-base", "bert-base of 128 tokens, 64 samples per GPU"},
                 {"tf32 --model bert-base --device-memory 20G", "a100-40 (20 GiB); "},
                 {"amp --model bert-base", "; precision amp, while runs of Duet"}};
    enum { ASKED = sizeof asked / sizeof *asked };
    double ms[ASKED], gib[ASKED];
    for (int i = 0; i < ASKED; i++) {
        char *out = cli_output("estimate --gpu a100-40 --dataset random --batch-per-device 64 "
                               "--devices 2 --precision %s",
                               asked[i].words),
             *text = unbroken(out);
        const char *row = strstr(out, "2 DDP ");
        int n = row ? sscanf(row, "2 DDP %lf %*d %% %*d %*s %*s %*s %*s %lf", ms + i, gib + i) : 0;
        cr_assert_eq(n, 2, "%s", out);
        cr_expect(strstr(text, asked[i].says), "%s: %s", asked[i].says, text);
        free(text), free(out);
    }
    cr_expect(ms[0] > ms[1] && ms[1] > ms[2] && ms[3] > ms[4] && ms[4] > ms[5]);
    cr_expect(gib[0] == gib[1] && gib[2] < 0.7 * gib[1] && gib[5] < 0.8 * gib[4], "%g %g %g",
              gib[2], gib[4], gib[5]);
}

/* Returns the percentage in the row. The output must contain `says`, or with a '!' must not. */
static int stated(const char *words, const char *row, const char *says) {
    int error = -1, absent = *says == '!';
    char *out = cli_output("estimate --dataset random --devices 1,2 %s", words),
         *at = strstr(out, row);
    cr_assert(at && sscanf(at + strlen(row), "%*f %d", &error) == 1, "%s: %s", words, out);
    cr_expect((strstr(out, says + absent) == NULL) == absent, "%s: %s: %s", words, says, out);
    free(out);
    return error;
}

/* A measured step never widens the error; one that contradicts the clock is reported. Kinds and
 * precisions that nobody has measured have no error to state. */
CliTest(modelled, the_error_says_how_little_is_known, 120) {
    static const char v100[] = "--gpu v100 --machine v100-edr --model bert-base "
                               "--batch-per-device 32 ",
                      none[] = "no measurement of this kind";
    char words[256];
    int without = stated(v100, "2 DDP ", "modelled: v100");
    snprintf(words, sizeof words, "%s --measured 1:267.6ms", v100);
    cr_expect_lt(stated(words, "2 DDP ", "!--measured:"), without);
    snprintf(words, sizeof words, "%s --measured 1:450ms", v100);
    cr_expect_lt(stated(words, "2 DDP ", "--measured: 450 ms is +"), without);
    cr_expect_eq(stated("--gpu v100 --model mlp --precision amp", "2 DDP ", none), 50);
    cr_expect_eq(stated("--gpu gtx1080ti --model resnet50 --shape 3x224x224 --precision amp",
                        "2 DDP ", "has no tensor"),
                 50);
}

/* PyTorch's profiler counts 228 operations of ResNet-50 forward, loss included, and 353 backward
 * (tests/golden/operations.txt). */
CliTest(modelled, details_count_the_launches, 60) {
    int forward = 0, backward = 0;
    char *out = cli_output("estimate --gpu a100-40 --model resnet50 --dataset random --devices 1 "
                           "--details"),
         *text = unbroken(out), *at = strstr(text, " forward ");
    int read = sscanf(at ? at : "",
                      " forward %*f (memory, %d operations), loss %*f (launches, 3 operations), "
                      "backward %*f (memory, %d",
                      &forward, &backward);
    cr_expect(read == 2 && abs(forward - 225) < 12 && abs(backward - 353) < 18, "%s", text);
    free(text), free(out);
    /* TF32's time for each group is the convolution's own */
    cli_says(0, "(flops), loss|(flops), optimizer",
             "estimate --gpu a100-40 --model resnext50_32x4d --batch-size 8 --devices 1");
}

/* They are PyTorch's, and its DataParallel follows no ring. */
CliTest(modelled, times_of_dp_follow_no_allreduce, 60) {
    static const char line[] = "estimate --gpu v100 --model resnet50 --devices 4 --modes dp,ddp "
                               "--batch-size 128 --allreduce %s";
    char *out[] = {cli_output(line, "auto"), cli_output(line, "ring")};
    const char *dp[] = {strstr(out[0], "4 DP "), strstr(out[1], "4 DP ")};
    cr_expect(dp[0] && dp[1] && !strncmp(dp[0], dp[1], 30), "%s%s", out[0], out[1]);
    free(out[0]), free(out[1]);
}

/* `duet lesson`: LeNet loses with DP, ResNet-50 gains with both and more with DDP, and BERT on two
 * GPUs over PCIe gains with DDP only. */
CliTest(modelled, lessons_three_models, 60) {
    static const char *const rows[] = {"lenet         2", "resnet50      4", "bert-base     2"};
    double dp[3], ddp[3];
    char *out = cli_output("lesson");
    for (int i = 0; i < 3; i++) {
        const char *row = strstr(out, rows[i]);
        cr_assert(row && sscanf(row + strlen(rows[i]), "%*d %*f %*f %*f %*f %lfx %lfx", &dp[i],
                                &ddp[i]) == 2,
                  "%s: %s", rows[i], out);
        cr_expect(ddp[i] > dp[i], "%s", row);
    }
    cr_expect(dp[0] < 1 && dp[1] > 2 && ddp[1] > 3 && dp[2] < 1 && ddp[2] > 1, "%s", out);
    free(out);
    cli_fails(2, "duet estimate --gpu", "lesson --model lenet");
}

CliTest(modelled, a_machine_of_ones_own, 120) {
    struct cli c;
    cli_put("mine", "link slow gbs 1 us 5\nmachine mine gpus 2\njoin gpu0-1 hub slow # a hub\n"
                    "join hub host memory\n");
    double ms[2];
    for (int i = 0; i < 2; i++) {
        cli_run(&c,
                "estimate --gpu a100-40 --machine ./mine --devices 2 --what-if link=%d,launch=0",
                i + 1);
        cr_assert_eq(c.status, 0, "%s", c.err);
        cr_expect(strstr(c.out, "(40 GiB); mine") && strstr(c.out, &"link=2,launch=0"[7 * !i]),
                  "%s", c.out);
        cr_assert_eq(sscanf(strstr(c.out, "2 DP "), "2 DP %lf", ms + i), 1, "%s", c.out);
        cli_free(&c);
    }
    double gain = 100 * (ms[0] / ms[1] - 1); /* links of 1 GB/s bound everything */
    cr_expect(gain > 20 && gain <= 100, "%g", gain);
    cli_says(0, "t4 (16 GiB); pc-pcie3: wide", "estimate --gpu t4 --devices 1");
    cli_put("again", "machine dgx1 gpus 2\njoin gpu0-1 hub pcie3\njoin hub host memory\n");
    cli_well("estimate --gpu v100 --machine ./again --devices 2"); /* it replaces the table's */
}

/* Another name for a calibrated machine states its error; with other numbers or links it is
 * another machine. */
CliTest(modelled, what_is_like_a_calibrated_machine_is_not_calibrated, 60) {
    static const char *const own[] = {
        "", " fitted 1 gpu v100\njoin gpu0 gpu5 nvlink2x1", /* calibrated by its author */
        " forward 9", "\njoin gpu0 gpu5 nvlink2x1",
        " error 1\nmachine two like own\njoin gpu0 gpu5 nvlink2x1"};
    int known = stated("--model resnet50 --gpu v100 --machine dgx1-2019 --batch-size 64",
                       "1 single ", "!calibrated");
    for (int i = 0; i < 5; i++) {
        char text[100];
        snprintf(text, sizeof text, "machine own like dgx1-2019%s\n", own[i]);
        cli_put("own", text);
        int error = stated("--model resnet50 --gpu v100 --machine ./own --batch-size 64",
                           "1 single ", "!calibrated" + (i > 1));
        cr_expect(i > 1 ? error > known : error == known, "%s: %d, %d", text, error, known);
    }
}

CliTest(modelled, a_timeline_of_the_step, 120) {
    cli_well("estimate --gpu v100 --machine dgx1 --devices 1,2 --trace t.json");
    char *text = cli_read("t.json", NULL);
    cr_expect(strstr(text, "DDP, modelled: 2 x v100, dgx1") && strstr(text, "allreduce bucket"));
    free(text);
    cr_expect_eq(cli_files(), 2, "the link golden, and t.json");
    /* a page and pictures of what could not be computed here */
    cli_well("estimate --gpu v100 --machine dgx1 --model resnet50 --dataset random --shape "
             "3x224x224 --batch-per-device 64 --devices 8 --report r.html --pictures p");
    static const char *const written[] = {"r.html", "p/timeline.svg", "p/phases.svg"};
    for (int i = 0; i < 3; i++) {
        text = cli_read(written[i], NULL);
        cr_expect(strstr(text, "modelled: 8 x v100, dgx1"), "%s", written[i]);
        cr_expect(i || (strstr(text, "Nothing was trained") && !strstr(text, "last loss") &&
                        strstr(text, "GPU 0 computes or copies for")));
        free(text);
    }
}

CliTest(modelled, bad_input_gets_one_line, 120) {
    cli_fails(2, "did you mean v100?", "estimate --gpu v10");
    cli_fails(2, "--gpu: 'v100,t4'", "estimate --gpu v100,t4");
    cli_fails(2, "expected lenet, convnet", "train --model net");
    cli_fails(2, "--machine: no effect without --gpu", "estimate --machine dgx1");
    cli_fails(2, "did you mean dgx1?", "estimate --gpu v100 --machine dgx-1");
    cli_fails(2, "dgx1 has 8 GPUs: give at", "estimate --gpu v100 --machine dgx1 --devices 9");
    cli_fails(2, "show the steps of one machine",
              "estimate --gpu v100 --machine dgx1 --devices 16 --nodes 2 --trace t");
    cli_fails(2, "leave fsdp out",
              "estimate --gpu v100 --machine dgx1 --devices 16 --nodes 2 --modes ddp,fsdp");
    cli_fails(2, "did you mean link?", "estimate --gpu v100 --what-if links=2");
    cli_fails(2, "emulated devices are counted", "estimate --gpu v100 --device cuda");
    cli_fails(2, "--device cuda are measured", "train --gpu v100 --device cuda");
    cli_fails(2, "such as 1:118ms", "estimate --gpu v100 --measured 2:9ms");
    cli_fails(2, "such as 1:118ms", "estimate --gpu v100 --measured 1:infms");
    cli_fails(2, "such as 1:118ms", "estimate --gpu v100 --measured 1:9ms,1x64:9ms");
    cli_fails(2, "leave one of them out",
              "estimate --gpu v100 --measured 1:9ms --what-if compute=2x");
    cli_fails(2, "times the clock's ", "estimate --gpu v100 --measured 1:118000ms");
    cli_fails(2, "times the clock's ", "estimate --gpu v100 --measured 1:0.001ms");
    cli_fails(2, "--gpu: is missing", "estimate --measured 1:9ms");
    cli_fails(2, "leave --gpu out", "estimate --validate --gpu v10");
    cli_fails(2, "such as --shape 3x224x224", "estimate --gpu v100 --model resnet50 --shape 224");
    cli_fails(2, "give amp", "estimate --gpu v100 --precision bf16");
    cli_fails(2, "its files are not read", "estimate --gpu v100 --data-dir .");
    cli_well("estimate --gpu v100 --params 1M --shape 10 --classes 2 --devices 1");
    cli_fails(2, "below 4 devices", "estimate --gpu v100 --batch-size 2 --devices 4");
    cli_fails(2, "it works only with estimate", "train --model resnet50");
    cli_fails(2, "dgx1 has 8 GPUs", "scale --gpu v100 --machine dgx1 --devices 1,16");
    cli_fails(2, "not a multiple of it", "scale --gpu v100 --machine dgx1 --devices 6,3 --nodes 2");
    cli_fails(2, "no network joins machines like pc-p", "scale --gpu v100 --devices 4 --nodes 2");
    cli_put("negative", "gpu bad fp32 -1 gbs 1 gib 1\n");
    cli_fails(2, "negative:1: fp32", "estimate --gpu v100 --machine ./negative");
    cli_put("nothing", "machine m gpus 2\njoin gpu0 hub pcie3\njoin hub host memory\n");
    cli_fails(2, "gpu0 does not reach every", "estimate --gpu v100 --machine ./nothing");
    cli_put("part", "machine m gpus 2.5\n");
    cli_fails(2, "part:1: '2.5': give an integer", "estimate --gpu v100 --machine ./part");
    cli_put("typo", "machine m gpus 2\njoin gpu0x hub pcie3\n");
    cli_fails(2, "typo:2: 'gpu0x'", "estimate --gpu v100 --machine ./typo");
    cli_put("itself", "machine m gpus 2\njoin gpu0 gpu0 pcie3\n");
    cli_fails(2, "two different ends", "estimate --gpu v100 --machine ./itself");
}

/* The table's numbers as JSON, of two GPUs. */
CliTest(modelled, the_table_as_json, 120) {
    cli_well("estimate --model resnet18 --gpu v100 --devices 1,2 --json j");
    cli_well("estimate --model resnet18 --gpu a100-40 --devices 1 --json other");
    struct json *json = json_of("j"), *other = json_of("other");
    cr_expect_eq(json_at(json, "modelled")->count, 4, "single, DP twice, DDP");
    cr_expect_eq(json_double(json, "modelled/0/speed_up"), 1);
    cr_expect(json_double(json, "modelled/0/ms_a_step") >
              json_double(other, "modelled/0/ms_a_step"));
    /* 40 GiB hold more than 16, and two GPUs more than one */
    int64_t one = json_int(json, "modelled/0/largest_batch");
    cr_expect(json_int(other, "modelled/0/largest_batch") > 2 * one);
    cr_expect(json_int(other, "modelled/0/largest_batch_pytorch") > 2 * one);
    cr_expect(llabs(json_int(json, "modelled/3/largest_batch") - 2 * one) < one / 100);
    /* DP's outputs lie on GPU 0 */
    cr_expect(json_int(json, "modelled/1/memory_peak_device_0") >
                  json_int(json, "modelled/1/memory_peak_others") &&
              json_int(json, "modelled/1/memory_peak_device_0_pytorch") > 1 << 20);
    json_free(json), json_free(other);
}

/* One net and one memory have one largest batch, however it is asked for. */
CliTest(modelled, the_largest_batch_is_that_of_the_memory, 120) {
    char words[160];
    cli_well("estimate --gpu a10 --model resnet50 --devices 4 --json times");
    char *out = cli_output("estimate --device-memory 24G --model resnet50 --devices 4"),
         *text = unbroken(out);
    struct json *times = json_of("times"); /* single is asked for by --devices 1 */
    snprintf(words, sizeof words, "; DP %d; DP, loss in forward %d; DDP %d.",
             (int)json_int(times, "modelled/0/largest_batch"),
             (int)json_int(times, "modelled/1/largest_batch"),
             (int)json_int(times, "modelled/2/largest_batch"));
    cr_expect(strstr(text, words), "no '%s' in: %s", words, text);
    json_free(times), free(text), free(out);
}

/* ---- runs ---- */

/* The names of the slices of a lane in step 2, in the order of their starts; waits are left out:
 * the clock may have none where the run had one. */
static void names_of(const struct json *trace, int pid, int lane, char *text, size_t bytes) {
    size_t used = 0;
    *text = 0;
    for (const struct json *e = first_event(trace); e; e = e->next) {
        const struct json *step =
            is_slice(e, pid, lane) ? json_find(json_at(e, "args"), "step") : NULL;
        if (!step || step->number != 2) continue;
        if (!strcmp(json_text(e, "name"), "wait")) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s|", json_text(e, "name"));
        cr_assert(used < bytes);
    }
}

static int has_lane(const struct json *trace, int pid) {
    for (const struct json *e = first_event(trace); e; e = e->next)
        if (is_slice(e, pid, TRACK_COMPUTE)) return 1;
    return 0;
}

/* The lane's spans in step 2 of both traces are the same, and the compute lane has some. */
static int is_same_lane(const struct json *a, const struct json *b, int pid, int lane) {
    enum { LONGEST = 1 << 16 };
    char *want = malloc(LONGEST), *got = malloc(LONGEST);
    names_of(a, pid, lane, want, LONGEST);
    names_of(b, pid, lane, got, LONGEST);
    int same = !strcmp(want, got) && (lane != TRACK_COMPUTE || *got || !has_lane(a, pid));
    free(want);
    free(got);
    return same;
}

/* 0 where all lanes are the same, else the process and the lane of one that is not: 1000 pid +
 * lane. */
static int other_lane(const char *measured, const char *modelled) {
    struct json *a = json_of(measured), *b = json_of(modelled);
    int other = 0;
    for (int d = 0; d < 2; d++)
        for (int lane = TRACK_COMPUTE; lane <= TRACK_COPY; lane++)
            if (!is_same_lane(a, b, 100 + d, lane)) other = 1000 * (100 + d) + lane;
    json_free(a);
    json_free(b);
    return other;
}

/* Runs of the same command, measured and modelled: the same weights, the same spans. Where the
 * loader is late, as on a busy machine, a batch is not copied during the kernels: then the run that
 * is measured is made again. */
static void expect_same(const char *words) {
    static const char run[] = "train --quiet --dataset random --steps 4 --batch-size 32 --samples "
                              "320 ";
    int other = 1;
    cli_well("%s%s --gpu v100 --machine dgx1 --trace b.json --save b", run, words);
    for (int tries = 0; other && tries < 8; tries++) {
        cli_well("%s%s --trace a.json --save a", run, words);
        other = other_lane("a.json", "b.json");
    }
    cr_expect_eq(other, 0, "%s: process and lane %d", words, other);
    cr_expect(cli_same_file("a", "b"), "%s: the weights", words);
}

/* The milliseconds of a step that the clock gives to way `name`, by the estimate. */
static double estimated_ms(const char *name) {
    struct json *estimate = json_of("e.json");
    double ms = -1;
    for (const struct json *w = json_at(estimate, "modelled")->child; w; w = w->next)
        if (!strcmp(json_text(w, "name"), name)) ms = json_double(w, "ms_a_step");
    json_free(estimate);
    return ms;
}

/* Also where the data set has no further full batch: 6400 random samples, by default. */
CliTest(modelled, a_step_is_that_of_a_full_batch, 60) {
    double ms[2];
    for (int i = 0; i < 2; i++) {
        cli_well("estimate --gpu v100 --machine dgx1 --devices 2 --model resnet18 --shape 1x28x28 "
                 "--dataset random --batch-size %d --json e.json",
                 i ? 2048 : 256);
        ms[i] = estimated_ms("dp");
    }
    cr_expect(ms[1] > 4 * ms[0], "%g and %g ms", ms[0], ms[1]);
}

/* What a run of 20 steps says of its times: they are the clock's, to the last digit, and marked. */
static void expect_modelled_times(const char *mode) {
    char words[192];
    snprintf(words, sizeof words,
             "train --quiet --mode %s --devices 2 --dataset random --batch-size 32 --samples 640 "
             "--steps 20 --gpu v100 --machine dgx1 --json t.json --report t.html --pictures p",
             mode);
    cli_well(words);
    struct json *root = json_of("t.json");
    const struct json *run = json_at(root, "runs")->child;
    double want = 20e-3 * estimated_ms(mode), got = json_double(run, "training_seconds");
    cr_expect(fabs(got - want) < 1e-9 * want, "%s: %.12g s, the clock says %.12g", mode, got, want);
    cr_expect(strstr(json_text(run, "modelled"), "2 x v100, dgx1"));
    cr_expect_eq(system("grep -q 'modelled: 2 x v100, dgx1' t.html"), 0);
    cr_expect_eq(system("grep -q modelled p/timeline.svg && grep -q modelled p/phases.svg"), 0);
    json_free(root);
}

CliTest(modelled, times_of_a_run_are_those_of_the_estimate, 60) {
    cli_well(
        "estimate --quiet --dataset random --batch-size 32 --gpu v100 --machine dgx1 --devices "
        "2 --json e.json");
    expect_modelled_times("dp");
    expect_modelled_times("ddp");
    /* a batch with more samples than the set has */
    if (has_fashion_mnist() && !test_short())
        cli_well("train --quiet --model mlp --mlp-hidden 2 --mode single --batch-size 60001 "
                 "--steps 1 --device-memory 4G --gpu v100");
}

CliTest(modelled, a_run_keeps_its_spans_and_bits, 300) {
    expect_same("--model lenet --mode dp");
    expect_same("--model lenet --mode ddp");
    if (test_short()) return;
    expect_same("--model lenet --mode single");
    expect_same("--model lenet --mode dp --loss-in-forward");
    expect_same("--model lenet --mode dp --dp-reduce sharded");
    expect_same("--model lenet --mode ddp --no-overlap");
    expect_same("--model lenet --mode ddp --no-sync-steps 2");
    expect_same("--model resnet18 --mode ddp --sync-bn --shape 1x16x16 --batch-size 8");
}
