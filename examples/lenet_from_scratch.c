/* Data parallelism by hand: LeNet on several devices, as "Dive into Deep Learning" 13.5 builds it
 * from scratch. Each step does four things:
 *
 *     split_batch         gives each device a piece of the batch
 *     forward_backward    on all devices at once; the loss is a SUM over the samples of the piece
 *     allreduce           for each parameter: adds all gradients on device 0, copies the sum back
 *     duet_sgd            on each device, on its own copy; divides by the size of the WHOLE batch
 *
 * So every device takes the same step and the copies stay equal. check_replicas checks this after
 * each step. --broken repeats a mistake of an early version of the chapter, and the check catches
 * it: the exit status is 3. --sharded is exercise 3 of the chapter, which sums different parameters
 * on different devices.
 *
 * The program uses only the library: cc lenet_from_scratch.c $(pkg-config --cflags --libs duet) */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "duet.h"

#define TRY(call)                \
    do {                         \
        int code_ = (call);      \
        if (code_) return code_; \
    } while (0)

struct options {
    int devices, epochs, batch_size;
    int steps; /* end after this many steps in all; 0: after `epochs` epochs */
    double lr;
    const char *dataset, *data_dir, *save, *kind;
    int broken;  /* 1: use broken_allreduce */
    int sharded; /* 1: use sharded_allreduce */
};

/* ---- the network ---- */

/* A further layer needs its names here, its shapes and its line in lenet(). */
enum { W1, b1, W2, b2, W3, b3, W4, b4, PARAMS };

/* The side of an image, and its side after each convolution and 2 x 2 pool. */
enum { SIDE = 28, SIDE_1 = (SIDE - 2) / 2, SIDE_2 = (SIDE_1 - 4) / 2, FLAT = 50 * SIDE_2 * SIDE_2 };

static const struct duet_param shapes[PARAMS] = {
    {"W1", 4, {20, 1, 3, 3}, NULL}, {"b1", 1, {20}, NULL},        {"W2", 4, {50, 20, 5, 5}, NULL},
    {"b2", 1, {50}, NULL},          {"W3", 2, {FLAT, 128}, NULL}, {"b3", 1, {128}, NULL},
    {"W4", 2, {128, 10}, NULL},     {"b4", 1, {10}, NULL},
};

static size_t count_of(const struct duet_param *p) {
    size_t count = 1;
    for (int d = 0; d < p->rank; d++)
        count *= (size_t)p->shape[d];
    return count;
}

static float *make_floats(size_t count) {
    float *values = malloc(count * sizeof *values);
    if (!values) perror("lenet_from_scratch"), exit(1);
    return values;
}

/* The weights are those of randn * 0.01, in new arrays; the biases are 0. */
static int init_params(struct duet_param *params) {
    duet_rng *rng;
    TRY(duet_rng_create(&rng, 0));
    for (int i = 0; i < PARAMS; i++) {
        params[i] = shapes[i];
        if (params[i].rank == 1) continue;
        size_t count = count_of(&shapes[i]);
        float *values = make_floats(count);
        duet_rng_normal(rng, values, count, 0, 0.01);
        params[i].values = values;
    }
    duet_rng_free(rng);
    return DUET_OK;
}

static duet_var *lenet(duet_tape *t, duet_tensor *X) {
    duet_var *h1 =
        duet_avg_pool2d(t, duet_relu(t, duet_conv2d(t, duet_input(t, X), W1, b1, NULL)), 2, NULL);
    duet_var *h2 = duet_avg_pool2d(t, duet_relu(t, duet_conv2d(t, h1, W2, b2, NULL)), 2, NULL);
    duet_var *h3 = duet_relu(t, duet_matmul_add(t, duet_flatten(t, h2), W3, b3));
    return duet_matmul_add(t, h3, W4, b4);
}

/* ---- data parallelism ---- */

/* Everything that one device has. The chapter keeps a list of each member instead. */
struct replica {
    duet_device *device;
    duet_params *params;
    duet_tape *tape;
    duet_tensor *X, *y; /* this device's piece of the batch: (n,1,28,28) and (n) */
    double loss;        /* the sum of the losses of this piece */
};

static int get_params(duet_params **copy, const struct duet_param *params, duet_device *device) {
    return duet_params_create(copy, device, params, PARAMS);
}

/* data[0] += data[1] + data[2] + ..., each of which is first copied to device 0. */
static int sum_to_first(duet_tensor *data[], int n) {
    for (int i = 1; i < n; i++) {
        duet_tensor *moved;
        TRY(duet_tensor_to(&moved, data[i], duet_tensor_device(data[0])));
        int code = duet_tensor_add(data[0], moved);
        duet_tensor_free(moved);
        TRY(code);
    }
    return DUET_OK;
}

/* Every tensor becomes the sum of all. */
static int allreduce(duet_tensor *data[], int n) {
    TRY(sum_to_first(data, n));
    for (int i = 1; i < n; i++)
        TRY(duet_tensor_copy(data[i], data[0]));
    return DUET_OK;
}

/* The mistake: an assignment instead of a copy INTO the tensor. It only makes data[i] another name
 * for data[0] inside this function; the gradient on device i stays as it was. Nothing fails, but
 * the model trains worse with every device. */
static int broken_allreduce(duet_tensor *data[], int n) {
    TRY(sum_to_first(data, n));
    for (int i = 1; i < n; i++)
        data[i] = data[0];
    return DUET_OK;
}

/* Exercise 3: the sum is made on device `owner`, from where it goes to the others. It adds in the
 * order of sum_to_first, so the bits are the same; but where each parameter has another owner, no
 * single device receives and sends all of the gradients. */
static int sharded_allreduce(duet_tensor *data[], int n, int owner) {
    duet_device *here = duet_tensor_device(data[owner]);
    duet_tensor *sum, *moved = NULL;
    TRY(duet_tensor_to(&sum, data[0], here));
    int code = DUET_OK;
    for (int i = 1; i < n && !code; i++) {
        code = duet_tensor_to(&moved, data[i], here);
        if (!code) code = duet_tensor_add(sum, moved);
        duet_tensor_free(moved);
    }
    for (int i = 0; i < n && !code; i++)
        code = duet_tensor_copy(data[i], sum);
    duet_tensor_free(sum);
    return code;
}

/* The device that adds up parameter i: each goes to the one with the least to add so far. */
static int owner_of(int i, int n) {
    size_t load[DUET_MAX_DEVICES] = {0};
    for (int k = 0;; k++) {
        int least = n - 1;
        for (int c = n - 1; c >= 0; c--)
            if (load[c] < load[least]) least = c;
        if (k == i) return least;
        load[least] += count_of(&shapes[k]);
    }
}

/* PyTorch's rule: each piece has ceil(batch / devices) samples, so the last devices may get fewer,
 * or none. */
static int split_batch(const struct duet_batch *batch, struct replica *replicas, int n) {
    int chunk = (batch->n + n - 1) / n;
    const int *s = batch->shape;
    for (int i = 0; i < n; i++) {
        struct replica *r = &replicas[i];
        int from = i * chunk < batch->n ? i * chunk : batch->n;
        int count = from + chunk < batch->n ? chunk : batch->n - from;
        duet_tensor_free(r->X), duet_tensor_free(r->y);
        r->X = r->y = NULL;
        TRY(duet_tensor_create(&r->X, r->device, DUET_F32, 4, (int[4]){count, s[0], s[1], s[2]},
                               batch->X + from * s[0] * s[1] * s[2]));
        TRY(duet_tensor_create(&r->y, r->device, DUET_I32, 1, &count, batch->y + from));
    }
    return DUET_OK;
}

/* Runs on the thread of device i. */
static int forward_backward(void *replicas, int i) {
    struct replica *r = (struct replica *)replicas + i;
    TRY(duet_tape_begin(r->tape, r->params, duet_tensor_dim(r->X, 0), DUET_TRAIN));
    duet_var *l = duet_cross_entropy(r->tape, lenet(r->tape, r->X), r->y, DUET_SUM, NULL);
    TRY(duet_backward(r->tape, l, NULL));
    return duet_loss_read(r->tape, l, &r->loss, NULL);
}

static int train_batch(const struct duet_batch *batch, struct replica *replicas, int n,
                       const struct options *o) {
    TRY(split_batch(batch, replicas, n));
    TRY(duet_parallel(n, forward_backward, replicas));
    for (int i = 0; i < PARAMS; i++) {
        duet_tensor *grads[DUET_MAX_DEVICES];
        for (int c = 0; c < n; c++)
            grads[c] = duet_params_grad(replicas[c].params, i);
        TRY(o->broken    ? broken_allreduce(grads, n)
            : o->sharded ? sharded_allreduce(grads, n, owner_of(i, n))
                         : allreduce(grads, n));
    }
    for (int c = 0; c < n; c++)
        TRY(duet_sgd(replicas[c].params, o->lr, batch->n));
    return DUET_OK;
}

/* ---- are the replicas still one model? ---- */

static int check_equal(const char *what, int i, duet_tensor *first, duet_tensor *other) {
    size_t count = duet_tensor_count(first);
    float *a = make_floats(2 * count), *b = a + count;
    int code = duet_tensor_read(first, a);
    if (!code) code = duet_tensor_read(other, b);
    int differ = !code && memcmp(a, b, count * sizeof *a);
    free(a);
    if (!differ) return code;
    fprintf(stderr,
            "replicas differ: %s of %s: %s and %s disagree: let allreduce write into every "
            "tensor\n",
            what, shapes[i].name, duet_device_name(duet_tensor_device(other)),
            duet_device_name(duet_tensor_device(first)));
    return DUET_CHECK;
}

/* They must be equal to the bit, since they began equal and took the same steps. */
static int check_replicas(const struct replica *replicas, int n) {
    for (int c = 1; c < n; c++) {
        duet_params *p = replicas[0].params, *q = replicas[c].params;
        for (int i = 0; i < PARAMS; i++) {
            TRY(check_equal("the gradient", i, duet_params_grad(p, i), duet_params_grad(q, i)));
            TRY(check_equal("the value", i, duet_params_value(p, i), duet_params_value(q, i)));
        }
    }
    return DUET_OK;
}

/* ---- training ---- */

/* Evaluates on device 0 only, as the chapter does. */
static int evaluate_accuracy(struct replica *r, duet_loader *test_iter, double *accuracy) {
    int64_t all = 0, right = 0, hits;
    struct duet_batch batch;
    TRY(duet_loader_start(test_iter, 0));
    for (;;) {
        TRY(duet_loader_next(test_iter, &batch));
        if (!batch.n) break;
        TRY(split_batch(&batch, r, 1));
        TRY(duet_tape_begin(r->tape, r->params, batch.n, DUET_EVALUATE));
        TRY(duet_loss_read(r->tape,
                           duet_cross_entropy(r->tape, lenet(r->tape, r->X), r->y, DUET_SUM, NULL),
                           NULL, &hits));
        right += hits;
        all += batch.n;
    }
    *accuracy = (double)right / (double)all;
    return DUET_OK;
}

static int train(const struct options *o, struct replica *replicas, duet_loader *train_iter,
                 duet_loader *test_iter) {
    double accuracy = 0, seconds = 0;
    int n = o->devices, steps = 0, epoch = 0;
    for (; epoch < o->epochs && (!o->steps || steps < o->steps); epoch++) {
        struct duet_batch batch;
        double loss = 0, start = duet_time();
        int64_t pictures = 0;
        TRY(duet_loader_start(train_iter, epoch));
        for (; !o->steps || steps < o->steps; steps++) {
            TRY(duet_loader_next(train_iter, &batch));
            if (!batch.n) break;
            TRY(train_batch(&batch, replicas, n, o));
            TRY(check_replicas(replicas, n));
            for (int c = 0; c < n; c++)
                loss += replicas[c].loss;
            pictures += batch.n;
        }
        seconds += duet_time() - start;
        TRY(evaluate_accuracy(&replicas[0], test_iter, &accuracy));
        printf("epoch %d: loss %.6f over %lld images, test acc %.4f\n", epoch + 1,
               loss / (double)pictures, (long long)pictures, accuracy);
    }
    int all = epoch * duet_loader_steps(train_iter);
    if (steps < all)
        printf("test acc: %.2f, %d of %d steps: %.1f s on [", accuracy, steps, all, seconds);
    else
        printf("test acc: %.2f, %.1f sec/epoch on [", accuracy, seconds / epoch);
    for (int c = 0; c < n; c++)
        printf("%s%s", c ? ", " : "", duet_device_name(replicas[c].device));
    printf("]\n");
    return o->save ? duet_params_save(replicas[0].params, o->save) : DUET_OK;
}

/* ---- the program ---- */

static int open_replicas(const struct options *o, duet_device **devices, struct replica *replicas) {
    struct duet_param params[PARAMS] = {0};
    int code = init_params(params);
    if (!code) code = duet_devices_open(devices, o->devices, o->kind, 0);
    for (int c = 0; c < o->devices && !code; c++) {
        replicas[c].device = devices[c];
        code = get_params(&replicas[c].params, params, devices[c]);
        if (!code) code = duet_tape_create(&replicas[c].tape, devices[c]);
    }
    for (int i = 0; i < PARAMS; i++)
        free((void *)params[i].values);
    return code;
}

static int run(const struct options *o) {
    duet_device *devices[DUET_MAX_DEVICES] = {0};
    struct replica replicas[DUET_MAX_DEVICES] = {0};
    duet_dataset *train_set = NULL, *test_set = NULL;
    duet_loader *train_iter = NULL, *test_iter = NULL;
    int code = open_replicas(o, devices, replicas);
    if (!code) code = duet_dataset_open(&train_set, o->dataset, o->data_dir, 1);
    if (!code) code = duet_dataset_open(&test_set, o->dataset, o->data_dir, 0);
    struct duet_loader_options l = {.batch_size = o->batch_size, .workers = 1};
    if (!code) code = duet_loader_create(&test_iter, test_set, &l);
    l.shuffle = DUET_SHUFFLE;
    if (!code) code = duet_loader_create(&train_iter, train_set, &l);
    if (!code) code = train(o, replicas, train_iter, test_iter);

    duet_loader_free(train_iter), duet_loader_free(test_iter);
    duet_dataset_free(train_set), duet_dataset_free(test_set);
    for (int c = 0; c < o->devices; c++) {
        duet_tensor_free(replicas[c].X), duet_tensor_free(replicas[c].y);
        duet_tape_free(replicas[c].tape);
        duet_params_free(replicas[c].params);
    }
    duet_devices_close(devices, o->devices);
    return code;
}

/* Reads a number from 0 to 1e9; 0 if `text` is none. */
static int read_number(const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    return end != text && !*end && *value >= 0 && *value <= 1e9;
}

/* Reads an integer from 1 to `most`; 0 if `text` is none. */
static int read_count(const char *text, int *value, int most) {
    double number;
    if (!read_number(text, &number) || number < 1 || number > most) return 0;
    *value = (int)number;
    return *value == number;
}

/* Returns NULL, or the option that is wrong. */
static const char *read_options(char **words, struct options *o) {
    const struct {
        const char *flag, **text;
        int *yes, *count, most;
    } known[] = {
        {"--dataset", .text = &o->dataset},
        {"--data-dir", .text = &o->data_dir},
        {"--device", .text = &o->kind},
        {"--save", .text = &o->save},
        {"--broken", .yes = &o->broken},
        {"--sharded", .yes = &o->sharded},
        {"--devices", .count = &o->devices, .most = DUET_MAX_DEVICES},
        {"--num_gpus", .count = &o->devices, .most = DUET_MAX_DEVICES}, /* the chapter's name */
        {"--epochs", .count = &o->epochs, .most = 1000000},
        {"--batch-size", .count = &o->batch_size, .most = 1000000},
        {"--batch_size", .count = &o->batch_size, .most = 1000000},
        {"--steps", .count = &o->steps, .most = 1000000},
        {"--lr", .most = 0},
    };
    for (size_t k = 0, flags = sizeof known / sizeof *known; *words; words++, k = 0) {
        while (k < flags && strcmp(*words, known[k].flag))
            k++;
        if (k == flags || (!known[k].yes && !words[1])) return *words;
        if (known[k].yes)
            *known[k].yes = 1;
        else if (words++, known[k].text)
            *known[k].text = *words;
        else if (known[k].count ? !read_count(*words, known[k].count, known[k].most)
                                : !read_number(*words, &o->lr))
            return words[-1];
    }
    return NULL;
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0); /* a line reaches a pipe when it is printed */
    struct options o = {2, 10, 256, .lr = 0.2, .dataset = "fashion-mnist", .kind = "auto"};
    const char *wrong = argc > 1 ? read_options(argv + 1, &o) : NULL;
    if (wrong) {
        int help = !strcmp(wrong, "--help");
        fprintf(
            help ? stdout : stderr,
            "lenet_from_scratch: %s%s: give [--devices 1..64] [--epochs N] [--batch-size N] "
            "[--lr X] [--steps N] [--data-dir DIR] [--dataset fashion-mnist|mnist|synthetic] "
            "[--broken | --sharded] [--device auto|cpu|cpu-async|cpu-late|cuda] [--save FILE]\n",
            help ? "" : "unknown option or wrong value: ", wrong);
        return help ? 0 : 2;
    }
    int code = run(&o);
    if (code && code != DUET_CHECK) fprintf(stderr, "lenet_from_scratch: %s\n", duet_error());
    return duet_exit_status(code);
}
