/* A program with a model and data of its own, for tests/app/cli/test_own_data.c. OWN_DATA in its
 * environment selects their kind. Each sample that is read adds a letter to the file that OWN_READS
 * names. */
#include <locale.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "duet.h"

enum { TRAIN = 70, TEST = 20, NUMBERS = 12, OUTPUTS = 3 };

static float numbers[TRAIN * NUMBERS], targets[TRAIN * OUTPUTS];
static uint8_t bytes[TRAIN * NUMBERS];
static int32_t labels[TRAIN];

static int read_sample(void *context, int i, void *sample, void *answer) {
    const char *trace = getenv("OWN_READS");
    int fd = trace ? open(trace, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
    if (fd >= 0 && write(fd, "r", 1) != 1) return 7;
    if (fd >= 0) close(fd);
    if (!strcmp(context, "fails") && i == 33) return 5;
    memcpy(sample, numbers + (ptrdiff_t)i * NUMBERS, NUMBERS * sizeof(float));
    memcpy(answer, labels + i, sizeof *labels);
    return 0;
}

static void describe(duet_module *m, void *context) {
    const int *in = duet_module_sample(m);
    (void)context;
    duet_module_linear(m, "fc1", in[0] * in[1] * in[2], 8, 1);
    duet_module_linear(m, "fc2", 8, duet_module_classes(m), 1);
}

static duet_var *forward(duet_tape *t, duet_var *x, void *context) {
    (void)context;
    return duet_layer(t, 1, duet_relu(t, duet_layer(t, 0, duet_flatten(t, x))));
}

int main(int argc, char **argv) {
    char *kind = getenv("OWN_DATA");
    int is_bytes = kind && !strncmp(kind, "bytes", 5),
        has_targets = kind && strstr(kind, "targets");
    for (int i = 0; i < TRAIN * NUMBERS; i++)
        numbers[i] = (float)(i * 37 % 101 - 50) / 25, bytes[i] = (uint8_t)(i * 37 % 251);
    for (int i = 0; i < TRAIN; i++) {
        labels[i] = i % OUTPUTS;
        for (int k = 0; k < OUTPUTS; k++)
            targets[i * OUTPUTS + k] = numbers[i * NUMBERS + k] - 1;
    }
    if (kind && !strcmp(kind, "negative")) labels[3] = -1;
    struct duet_data train = {.count = TRAIN,
                              .rank = 2,
                              .shape = {3, 4},
                              .type = is_bytes ? DUET_U8 : DUET_F32,
                              .samples = is_bytes ? (const void *)bytes : numbers},
                     test = train, none = {.count = 0};
    train.labels = test.labels = has_targets ? NULL : labels;
    train.targets = test.targets = has_targets ? targets : NULL;
    train.outputs = test.outputs = has_targets ? OUTPUTS : 0;
    test.count = TEST;
    if (kind && (!strcmp(kind, "function") || !strcmp(kind, "fails"))) {
        train.samples = NULL, train.labels = NULL;
        train.read = read_sample, train.context = kind;
    }
    struct duet_model model = {.name = "mynet",
                               .sample = {3, 4, 1},
                               .describe = describe,
                               .forward = forward,
                               .loss = has_targets ? DUET_MSE : DUET_CROSS_ENTROPY,
                               .train = &train,
                               .test = &test};
    if (kind && !strcmp(kind, "no test")) model.test = NULL;
    if (kind && !strcmp(kind, "empty")) model.train = &none;
    if (kind && !strcmp(kind, "test alone")) model.train = NULL;
    setlocale(LC_ALL, ""); /* as many programs do: numbers must not depend on it */
    return duet_command(argc, argv, &model);
}
