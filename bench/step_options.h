/* The flags of step_perf. */
#ifndef BENCH_STEP_OPTIONS_H
#define BENCH_STEP_OPTIONS_H

#include <getopt.h>
#include <string.h>

#include "base/error.h"
#include "base/text/parse.h"
#include "models/model.h"
#include "train/job.h"

enum { LIST = 8 }; /* the most values in a flag's list */
static const double RATE = 0.1;

struct options {
    struct run_config base;
    const char *models[LIST];
    int64_t batches[LIST], devices[LIST];
    int model_count, batch_count, device_count;
    char json[PATH_BYTES], model_words[64];
};

static int read_models(char *text, struct options *o) {
    for (char *save, *word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        struct model model = {0};
        CHECK(model_open(&model, word, &o->base.model.options));
        model_free(&model);
        if (o->model_count == LIST) return fail(ERR_USAGE, "--models: %s: at most %d", word, LIST);
        o->models[o->model_count++] = word;
    }
    return o->model_count
               ? OK
               : fail(
                     ERR_USAGE,
                     "--models: names none: give lenet, convnet, mlp, resnet18, simple or complex");
}

static int read_word(const char *flag, char *out, size_t bytes, const char *text) {
    if (strlen(text) >= bytes)
        return fail(ERR_USAGE, "--%s: %.40s...: at most %zu characters", flag, text, bytes - 1);
    strcpy(out, text);
    return OK;
}

static int read_math(const char *text, enum device_math *math) {
    *math = strcmp(text, "library") ? DEVICE_MATH_OWN : DEVICE_MATH_LIBRARY;
    return *math == DEVICE_MATH_OWN && strcmp(text, "own")
               ? fail(ERR_USAGE, "--cuda-math: %s: give own or library", text)
               : OK;
}

static int parse_options(int argc, char **argv, struct options *o) {
    static const struct option longs[] = {{"device", 1, 0, 'd'},
                                          {"models", 1, 0, 'm'},
                                          {"batches", 1, 0, 'b'},
                                          {"devices", 1, 0, 'n'},
                                          {"epochs", 1, 0, 'e'},
                                          {"data-dir", 1, 0, 'D'},
                                          {"tf32", 0, 0, 't'},
                                          {"cuda-math", 1, 0, 'M'},
                                          {"json", 1, 0, 'j'},
                                          {"help", 0, 0, 'h'},
                                          {0, 0, 0, 0}};
    int64_t epochs = 5;
    char models[] = "lenet,convnet", batches[] = "256,64,1024", devices[] = "2,4",
         *model_words = models;
    const char *batch_words = batches, *device_words = devices;
    *o = (struct options){.model_count = 0};
    run_config_default(&o->base);
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        switch (c) {
        case 'd': CHECK(read_word("device", o->base.device, sizeof o->base.device, optarg)); break;
        case 'm': model_words = optarg; break;
        case 'b': batch_words = optarg; break;
        case 'n': device_words = optarg; break;
        case 'e': CHECK(parse_int("--epochs", optarg, 2, 1000, &epochs)); break;
        case 'D':
            CHECK(read_word("data-dir", o->base.data.folder, sizeof o->base.data.folder, optarg));
            break;
        case 't': o->base.tf32 = 1; break;
        case 'M': CHECK(read_math(optarg, &o->base.cuda_math)); break;
        case 'j': CHECK(read_word("json", o->json, sizeof o->json, optarg)); break;
        default:
            return fail(
                ERR_USAGE,
                "usage: step_perf [--device auto|cpu|cuda] [--models NAME,...] [--batches B,...] "
                "[--devices N,...|0] [--epochs N] [--data-dir DIR] [--cuda-math own|library] "
                "[--tf32] [--json FILE]");
        }
    }
    if (optind < argc)
        return fail(ERR_USAGE, "%s: not understood: --help shows the flags", argv[optind]);
    CHECK(read_word("models", o->model_words, sizeof o->model_words, model_words));
    CHECK(read_models(o->model_words, o));
    CHECK(parse_int_list("--batches", batch_words, 1, 1 << 20, o->batches, LIST, &o->batch_count));
    CHECK(parse_int_list("--devices", device_words, 0, MAX_DEVICES, o->devices, LIST,
                         &o->device_count));
    /* a folder may hold any images in this format */
    strcpy(o->base.data.name, *o->base.data.folder ? "fashion-mnist" : "synthetic");
    o->base.epochs = (int)epochs;
    o->base.update.lr = RATE;
    o->base.evaluate = 0;
    o->base.quiet = 1;
    return OK;
}

#endif
