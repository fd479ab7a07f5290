/* The flags: a table of rows {name, value, help, how to read it, where it goes}. */
#include "cli/flags.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "allreduce/plan.h"
#include "base/error.h"
#include "base/parse.h"

struct flag;
typedef int flag_reader(const struct flag *flag, const char *text, struct run_config *config);

struct flag {
    const char *name;
    const char *value; /* how --help shows the value; NULL: the flag takes none */
    const char *help;
    flag_reader *read;
    size_t offset, bytes; /* of the member it sets */
    double lowest, highest;
};

static void *member(const struct flag *flag, struct run_config *config) {
    return (char *)config + flag->offset;
}

static int read_int(const struct flag *flag, const char *text, struct run_config *config) {
    int64_t value = 0;
    CHECK(parse_int(flag->name, text, (int64_t)flag->lowest, (int64_t)flag->highest, &value));
    *(int *)member(flag, config) = (int)value;
    return OK;
}

static int read_number(const struct flag *flag, const char *text, struct run_config *config) {
    return parse_number(flag->name, text, flag->lowest, flag->highest, member(flag, config));
}

static int read_text(const struct flag *flag, const char *text, struct run_config *config) {
    if (strlen(text) >= flag->bytes)
        return fail(ERR_USAGE, "%s: %.40s...: at most %zu characters", flag->name, text,
                    flag->bytes - 1);
    if (!*text) return fail(ERR_USAGE, "%s: the value is empty: give %s", flag->name, flag->value);
    memcpy(member(flag, config), text, strlen(text) + 1);
    return OK;
}

static int read_on(const struct flag *flag, const char *text, struct run_config *config) {
    (void)text;
    *(int *)member(flag, config) = 1;
    return OK;
}

static int read_off(const struct flag *flag, const char *text, struct run_config *config) {
    (void)text;
    *(int *)member(flag, config) = 0;
    return OK;
}

static int read_mode(const struct flag *flag, const char *text, struct run_config *config) {
    if (mode_parse(text, &config->mode)) return OK;
    return fail(ERR_USAGE, "%s: '%s': there are single, dp and ddp", flag->name, text);
}

static int read_virtual(const struct flag *flag, const char *text, struct run_config *config) {
    if (strcmp(text, "off")) return read_int(flag, text, config);
    config->virtual_devices = VIRTUAL_OFF;
    return OK;
}

static int read_math(const struct flag *flag, const char *text, struct run_config *config) {
    if (!strcmp(text, "own"))
        config->cuda_math = DEVICE_HOST_KERNELS_OWN;
    else if (!strcmp(text, "library"))
        config->cuda_math = DEVICE_HOST_KERNELS_LIBRARY;
    else
        return fail(ERR_USAGE, "%s: '%s': there are own and library", flag->name, text);
    return OK;
}

static int read_optimizer(const struct flag *flag, const char *text, struct run_config *config) {
    for (int kind = 0; kind < OPTIMIZER_COUNT; kind++) {
        if (strcmp(optimizer_name(kind), text)) continue;
        config->optimizer = kind;
        return OK;
    }
    return fail(ERR_USAGE, "%s: '%s': there are sgd, adadelta and adam", flag->name, text);
}

static int read_size(const struct flag *flag, const char *text, struct run_config *config) {
    return parse_size(flag->name, text, (uint64_t)flag->lowest, (uint64_t)flag->highest,
                      member(flag, config));
}

static int read_seed(const struct flag *flag, const char *text, struct run_config *config) {
    return parse_seed(flag->name, text, &config->seed);
}

static int read_algorithm(const struct flag *flag, const char *text, struct run_config *config) {
    enum allreduce_algorithm algorithm;
    (void)flag;
    CHECK(allreduce_algorithm_parse(text, &algorithm));
    snprintf(config->allreduce, sizeof config->allreduce, "%s",
             allreduce_algorithm_name(algorithm));
    return OK;
}

static int read_hidden(const struct flag *flag, const char *text, struct run_config *config) {
    int64_t widths[16];
    CHECK(parse_int_list(flag->name, text, 1, 1000000, widths, 16,
                         &config->model_options.hidden_count));
    for (int i = 0; i < config->model_options.hidden_count; i++)
        config->model_options.hidden[i] = (int)widths[i];
    return OK;
}

#define AT(m) offsetof(struct run_config, m), sizeof((struct run_config *)0)->m
static const struct flag flags[] = {
    {"--mode", "single|dp|ddp", "strategy (train; default single)", read_mode, AT(mode), 0, 0},
    {"--device", "auto|cpu|cuda",
     "cpu: emulated devices; cuda: GPUs; auto: GPUs where one is found (default)", read_text,
     AT(device), 0, 0},
    {"--devices", "N",
     "devices of dp and ddp (default 2); single uses one; more than GPUs share them", read_int,
     AT(devices), 1, MAX_DEVICES},
    {"--virtual-devices", "V|off",
     "virtual devices, a multiple of the devices (default: as many; compare: N, in all modes)",
     read_virtual, AT(virtual_devices), 1, MAX_DEVICES},
    {"--device-memory", "SIZE",
     "memory of a device, as 512M or 4G; rounded up to whole 2 MiB, at least 2M (default: `duet "
     "devices` says; cuda: "
     "a share of the GPU)",
     read_size, AT(device_memory), 2 << 20, 0x1p50},
    {"--model", "NAME", "lenet, convnet or mlp (default lenet)", read_text, AT(model), 0, 0},
    {"--mlp-hidden", "H1,H2,...", "widths between the picture and the 10 classes (default 256)",
     read_hidden, 0, 0, 0, 0},
    {"--dropout", "P", "replaces the dropout probabilities of the model", read_number,
     AT(model_options.dropout), 0, 1},
    {"--dataset", "NAME", "fashion-mnist, mnist or synthetic (default fashion-mnist)", read_text,
     AT(dataset), 0, 0},
    {"--data-dir", "DIR", "folder with the four IDX files, raw or .gz", read_text, AT(data_dir), 0,
     0},
    {"--data-on", "auto|host|device",
     "device: the data set lies there and batches are made of it; auto: on GPUs, if it fits a "
     "quarter (default)",
     read_text, AT(data_on), 0, 0},
    {"--epochs", "N", "epochs (default 10; demo 3)", read_int, AT(epochs), 1, 1000000},
    {"--steps", "N", "end after N steps in all (profile: default 50)", read_int, AT(steps), 1,
     INT32_MAX - 1},
    {"--batch-size", "B", "GLOBAL batch, split over the devices (default 256)", read_int,
     AT(batch_size), 1, 1 << 24},
    {"--optimizer", "NAME", "sgd, adadelta or adam (default sgd)", read_optimizer, 0, 0, 0, 0},
    {"--lr", "X", "learning rate (default: sgd 0.2, adadelta 1, adam 0.001)", read_number, AT(lr),
     0, 3.4e38},
    {"--momentum", "X", "momentum of SGD (default 0)", read_number, AT(momentum), 0, 3.4e38},
    {"--weight-decay", "X", "weight decay, added to the gradient (default 0)", read_number,
     AT(weight_decay), 0, 3.4e38},
    {"--seed", "S",
     "initial weights, sampler and dropout, as torch.manual_seed takes it (default 0)", read_seed,
     AT(seed), 0, 0},
    {"--shuffle", NULL, "a new order each epoch (default)", read_on, AT(shuffle), 0, 0},
    {"--no-shuffle", NULL, "the order of the files", read_off, AT(shuffle), 0, 0},
    {"--drop-last", NULL, "cut instead of pad; no short last batch", read_on, AT(drop_last), 0, 0},
    {"--workers", "N", "threads that prepare batches; 0: none (default 1)", read_int, AT(workers),
     0, 64},
    {"--allreduce", "NAME",
     "ddp: auto, naive, oneshot, direct, ring, tree, fused or nccl (default auto)", read_algorithm,
     AT(allreduce), 0, 0},
    {"--bucket-cap-mb", "X",
     "ddp: MiB of a bucket (default 25, the first 1); given alone it sets both", read_number,
     AT(bucket_cap_mb), 1e-6, 1e6},
    {"--first-bucket-mb", "X", "ddp: MiB of the first bucket", read_number, AT(first_bucket_mb),
     1e-6, 1e6},
    {"--loss-in-forward", NULL, "dp: each device computes its own loss; no output is gathered",
     read_on, AT(loss_in_forward), 0, 0},
    {"--cuda-math", "own|library",
     "cuda: products by own kernels, or by cuBLAS and (if found) cuDNN (default own)", read_math,
     AT(cuda_math), 0, 0},
    {"--tf32", NULL, "cuda: products may round their inputs to tf32", read_on, AT(tf32), 0, 0},
    {"--no-graph", NULL,
     "cuda: enqueue each kernel anew instead of replaying a graph (compare, profile, --trace: "
     "always)",
     read_on, AT(no_graph), 0, 0},
    {"--timeout", "SECONDS", "deadline of every wait (default 300)", read_number, AT(timeout), 0.01,
     1e6},
    {"--init-from", "FILE", "start from the weights of a safetensors file", read_text,
     AT(init_from), 0, 0},
    {"--save", "FILE", "train: write the weights at the end, safetensors", read_text, AT(save), 0,
     0},
    {"--log-loss", "FILE", "train: write step,epoch,loss of every step, CSV", read_text,
     AT(log_loss), 0, 0},
    {"--json", "FILE", "write all results as JSON", read_text, AT(json), 0, 0},
    {"--trace", "FILE",
     "write a timeline of the first 1000 steps, to open in Perfetto; cuda: without graphs",
     read_text, AT(trace), 0, 0},
    {"--quiet", NULL, "no progress", read_on, AT(quiet), 0, 0},
};
enum { FLAG_COUNT = sizeof flags / sizeof *flags };

/* The file that a path leads to, as atomic_open replaces it: an existing one by its real name, a
 * new one by its folder's. 0: none that two outputs could spoil for each other (a device, a
 * pipe), or none at all: opening it will say why. */
static int file_of(const char *path, char real[PATH_MAX]) {
    struct stat s;
    char folder[PATH_BYTES];
    if (!stat(path, &s)) return S_ISREG(s.st_mode) && realpath(path, real);
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    const char *name = slash ? path + (slash - folder) + 1 : path;
    if (slash) slash[slash == folder] = 0; /* "/x" lies in "/" */
    if (!realpath(slash ? folder : ".", real) || strlen(real) + strlen(name) + 2 > PATH_MAX)
        return 0;
    strcat(strcat(real, "/"), name);
    return 1;
}

/* Two results in one file: the later would replace the earlier, and nobody would know. Weights
 * may go where they came from. */
static int refuse_one_file(const struct run_config *config) {
    const char *const names[] = {"--init-from", "--save", "--log-loss", "--json", "--trace"};
    const char *const paths[] = {config->init_from, config->save, config->log_loss, config->json,
                                 config->trace};
    char real[5][PATH_MAX];
    for (int i = 0; i < 5; i++) {
        if (!*paths[i] || !file_of(paths[i], real[i])) *real[i] = 0;
        for (int j = i == 1 ? 1 : 0; j < i; j++)
            if (*real[i] && !strcmp(real[i], real[j]))
                return fail(ERR_USAGE, "%s and %s: %s and %s are the same file: give two", names[j],
                            names[i], paths[j], paths[i]);
    }
    return OK;
}

/* Equal up to '=' or the end of `word`, '_' standing for '-' after the first two. */
static int same_flag(const char *name, const char *word) {
    for (; *word && *word != '='; name++, word++)
        if (*name != (*word == '_' ? '-' : *word)) return 0;
    return !*name;
}

static const struct flag *find(const char *word) {
    for (int i = 0; i < FLAG_COUNT; i++)
        if (same_flag(flags[i].name, word)) return &flags[i];
    return NULL;
}

int flags_parse(int argc, char **argv, struct run_config *config, int *help) {
    *help = 0;
    config->lr = -1; /* not given */
    for (int i = 0; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            *help = 1;
            return OK;
        }
        const struct flag *flag = find(argv[i]);
        if (!flag) return fail(ERR_USAGE, "unknown flag: %s: see duet --help", argv[i]);
        const char *equals = strchr(argv[i], '=');
        if (!flag->value && equals)
            return fail(ERR_USAGE, "%s: takes no value, but was given %s: leave it out", flag->name,
                        equals + 1);
        const char *text = !flag->value   ? ""
                           : equals       ? equals + 1
                           : i + 1 < argc ? argv[++i]
                                          : NULL;
        if (!text) return fail(ERR_USAGE, "%s: no value: give %s", flag->name, flag->value);
        CHECK(flag->read(flag, text, config));
    }
    if (config->lr < 0) config->lr = optimizer_learning_rate(config->optimizer);
    return refuse_one_file(config);
}

int flags_parse_all_modes(int argc, char **argv, struct run_config *config, int *help,
                          const char *command) {
    config->mode = MODE_COUNT; /* none yet */
    CHECK(flags_parse(argc, argv, config, help));
    if (*help) return OK;
    if (config->mode != MODE_COUNT)
        return fail(ERR_USAGE, "--mode: duet %s runs several: leave it out, or use duet train",
                    command);
    if (*config->save || *config->log_loss)
        return fail(ERR_USAGE,
                    "%s: duet %s trains more than one model and does not write it: use duet train",
                    *config->save ? "--save" : "--log-loss", command);
    config->mode = MODE_DP;
    return OK;
}

void flags_help(const char *command) {
    if (command) printf("usage: duet %s [flags]\n\n", command);
    printf("flags (dash and underscore are the same; --flag value or --flag=value):\n");
    for (int i = 0; i < FLAG_COUNT; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", flags[i].name, flags[i].value ? flags[i].value : "");
        printf("  %-30s %s\n", left, flags[i].help);
    }
}
