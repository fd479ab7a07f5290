/* The flags of allreduce_perf, which are nccl-tests' flags if it has them:
 *
 *     allreduce_perf [-d cpu|cuda] [-b 1K] [-e 64M] [-f 2] [-n 20] [-w 5] [-r 2]
 *                    [-a all|auto|naive|...] [-o sum|avg] [-c 0|1] [-p 0|1]
 *
 * Sizes run from -b to -e bytes, each -f times the previous one. -n calls are timed after -w
 * untimed ones. */
#ifndef BENCH_ALLREDUCE_OPTIONS_H
#define BENCH_ALLREDUCE_OPTIONS_H

#include <getopt.h>
#include <sched.h>
#include <string.h>

#include "allreduce/plan.h"
#include "base/error.h"
#include "base/text/parse.h"
#include "device/device.h"

struct options {
    uint64_t from, to; /* bytes */
    int64_t factor, calls, warmup, ranks, check, pin;
    int average; /* 1: avg, 0: sum */
    enum device_kind kind;
    enum allreduce_algorithm only; /* used if all is 0; AUTO: auto itself */
    int all;                       /* 1: every algorithm in turn */
};

static int core_count(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/* Parses one of two words as 0 or 1. */
static int parse_word(const char *flag, const char *text, const char *zero, const char *one,
                      int *value) {
    *value = strcmp(text, one) == 0;
    if (!*value && strcmp(text, zero))
        return fail(ERR_USAGE, "%s: %s: choose %s or %s", flag, text, zero, one);
    return OK;
}

#define BAR_WORD(NAME, word, in_fold_order, uses_scratch) "|" #word
#define ALGORITHMS_TO_CHOOSE "all|auto" ALLREDUCE_PLANS(BAR_WORD) "|nccl"

static int parse_flag(struct options *o, int flag, const char *text, const char *program) {
    const int64_t most_calls = 1000000;
    const uint64_t most_bytes = (uint64_t)1 << 33;
    int cuda;
    switch (flag) {
    case 'b': return parse_size("-b", text, sizeof(float), most_bytes, &o->from);
    case 'e': return parse_size("-e", text, sizeof(float), most_bytes, &o->to);
    case 'f': return parse_int("-f", text, 2, 1024, &o->factor);
    case 'n': return parse_int("-n", text, 1, most_calls, &o->calls);
    case 'w': return parse_int("-w", text, 0, most_calls, &o->warmup);
    case 'r': return parse_int("-r", text, 1, MAX_DEVICES, &o->ranks);
    case 'c': return parse_int("-c", text, 0, 1, &o->check);
    case 'p': return parse_int("-p", text, 0, 1, &o->pin);
    case 'o': return parse_word("-o", text, "sum", "avg", &o->average);
    case 'd':
        CHECK(parse_word("-d", text, "cpu", "cuda", &cuda));
        o->kind = cuda ? DEVICE_CUDA : DEVICE_HOST;
        return OK;
    case 'a':
        o->all = strcmp(text, "all") == 0;
        return o->all ? OK : allreduce_algorithm_parse(text, &o->only);
    default:
        return fail(ERR_USAGE,
                    "usage: %s [-d cpu|cuda] [-b BYTES] [-e BYTES] [-f FACTOR] [-n CALLS] "
                    "[-w WARMUP] [-r RANKS] [-a " ALGORITHMS_TO_CHOOSE "] [-o sum|avg] [-c 0|1] "
                    "[-p 0|1]",
                    program);
    }
}

static int parse_options(int argc, char **argv, struct options *o) {
    static const struct option longs[] = {{"minbytes", 1, 0, 'b'},
                                          {"maxbytes", 1, 0, 'e'},
                                          {"stepfactor", 1, 0, 'f'},
                                          {"iters", 1, 0, 'n'},
                                          {"warmup_iters", 1, 0, 'w'},
                                          {"ranks", 1, 0, 'r'},
                                          {"algorithm", 1, 0, 'a'},
                                          {"op", 1, 0, 'o'},
                                          {"check", 1, 0, 'c'},
                                          {"pin", 1, 0, 'p'},
                                          {"device", 1, 0, 'd'},
                                          {"help", 0, 0, 'h'},
                                          {0, 0, 0, 0}};
    *o = (struct options){.from = 1 << 10,
                          .to = 64 << 20,
                          .factor = 2,
                          .calls = 20,
                          .warmup = 5,
                          .ranks = 2,
                          .check = 1,
                          .pin = 1,
                          .kind = DEVICE_HOST,
                          .all = 1};
    for (int c; (c = getopt_long(argc, argv, "b:e:f:n:w:r:a:o:c:p:d:h", longs, NULL)) != -1;)
        CHECK(parse_flag(o, c, optarg, argv[0]));
    if (optind < argc)
        return fail(ERR_USAGE, "%s: not understood: -h shows the flags", argv[optind]);
    if (o->from > o->to)
        return fail(ERR_USAGE, "-b %llu: more than -e %llu: swap them", (unsigned long long)o->from,
                    (unsigned long long)o->to);
    if (o->kind != DEVICE_HOST || o->ranks > core_count()) o->pin = 0;
    return OK;
}

#endif
