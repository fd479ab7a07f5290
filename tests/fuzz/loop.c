/* A fuzzer for compilers without libFuzzer: it runs the kept inputs, then mutations of them until
 * the time is over. It does not look at coverage. Its flags and its last lines are libFuzzer's:
 *
 *     fuzz_json [-max_total_time=SECONDS] [-seed=N] [-artifact_prefix=PATH] FOLDER_OR_FILE...
 *
 * The input that runs stands in the file PATHcurrent, so it is still there after a crash. The file
 * is removed where all went well. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/random.h"
#include "tests/fuzz/fuzz.h"

enum { LONGEST = 1 << 16, INPUTS = 4096 };

struct input {
    uint8_t *data;
    size_t size;
};

struct loop {
    struct input kept[INPUTS];
    int count;
    struct rng rng;
    uint8_t current[LONGEST];
    size_t size; /* of the current input */
    int fd;      /* of the file PATHcurrent */
    long executions;
};

static uint32_t below(struct loop *l, size_t n) {
    return n ? (uint32_t)(rng_u32(&l->rng) % n) : 0;
}

/* ---- kept inputs ---- */

static void add_file(struct loop *l, const char *path) {
    FILE *f = fopen(path, "r");
    if (!f || l->count == INPUTS) {
        if (f) fclose(f);
        return;
    }
    struct input *input = &l->kept[l->count];
    input->data = malloc(LONGEST);
    MUST(input->data);
    input->size = fread(input->data, 1, LONGEST, f);
    fclose(f);
    l->count++;
}

static void add_path(struct loop *l, const char *path) {
    DIR *folder = opendir(path);
    if (!folder) {
        add_file(l, path);
        return;
    }
    for (struct dirent *entry; (entry = readdir(folder));) {
        char file[4096];
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (entry->d_name[0] != '.') add_file(l, file);
    }
    closedir(folder);
}

/* ---- mutations ---- */

static void flip_bit(struct loop *l) {
    if (l->size) l->current[below(l, l->size)] ^= (uint8_t)(1u << below(l, 8));
}

static void set_byte(struct loop *l) {
    static const uint8_t likely[] = {0, 1, 0x7f, 0x80, 0xff, ' ', '\n', '"', ',', '-', '9', '}'};
    if (l->size) l->current[below(l, l->size)] = likely[below(l, sizeof likely)];
}

/* Sets 1, 2, 4 or 8 bytes to a number at the border of its type, in either byte order. */
static void set_number(struct loop *l) {
    static const uint64_t borders[] = {0, 1, 0x7f, 0xff, 0x7fff, 0xffff, 0x7fffffff, 0xffffffff};
    size_t bytes = (size_t)1 << below(l, 4);
    if (l->size < bytes) return;
    uint64_t value = borders[below(l, 8)] - below(l, 2);
    if (below(l, 2)) value = __builtin_bswap64(value) >> (64 - 8 * bytes);
    memcpy(l->current + below(l, l->size - bytes + 1), &value, bytes);
}

static void remove_piece(struct loop *l) {
    size_t at = below(l, l->size), n = 1 + below(l, 16);
    if (at + n > l->size) return;
    memmove(l->current + at, l->current + at + n, l->size - at - n);
    l->size -= n;
}

/* Inserts a piece of a kept input, which may be this one's own. */
static void insert_piece(struct loop *l) {
    const struct input *from = &l->kept[below(l, (size_t)l->count)];
    size_t at = below(l, l->size + 1), start = below(l, from->size + 1);
    size_t n = below(l, from->size - start + 1);
    if (below(l, 4)) n %= 32;
    if (l->size + n > LONGEST) return;
    memmove(l->current + at + n, l->current + at, l->size - at);
    memcpy(l->current + at, from->data + start, n);
    l->size += n;
}

static void cut_off(struct loop *l) {
    l->size = below(l, l->size + 1);
}

static void mutate(struct loop *l) {
    static void (*const ways[])(struct loop *) = {flip_bit,     set_byte,     set_number,
                                                  remove_piece, insert_piece, insert_piece};
    for (uint32_t i = 1 + below(l, 6); i > 0; i--)
        ways[below(l, sizeof ways / sizeof *ways)](l);
    if (!below(l, 20)) cut_off(l);
}

/* ---- the loop ---- */

static void run(struct loop *l) {
    uint8_t *exact = malloc(l->size ? l->size : 1); /* so that a read behind the end is found */
    MUST(exact);
    memcpy(exact, l->current, l->size);
    MUST(pwrite(l->fd, exact, l->size, 0) == (ssize_t)l->size && !ftruncate(l->fd, (off_t)l->size));
    LLVMFuzzerTestOneInput(exact, l->size);
    l->executions++;
    free(exact);
}

static void take(struct loop *l, const struct input *input) {
    memcpy(l->current, input->data, input->size);
    l->size = input->size;
}

int main(int argc, char **argv) {
    static struct loop l;
    double seconds = 0;
    unsigned long long seed = 1;
    const char *prefix = "./";
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "-max_total_time=", 16))
            seconds = atof(argv[i] + 16);
        else if (!strncmp(argv[i], "-seed=", 6))
            seed = strtoull(argv[i] + 6, NULL, 10);
        else if (!strncmp(argv[i], "-artifact_prefix=", 17))
            prefix = argv[i] + 17;
        else if (argv[i][0] != '-')
            add_path(&l, argv[i]);
    }
    char path[4096];
    snprintf(path, sizeof path, "%scurrent", prefix);
    l.fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    MUST(l.fd >= 0);
    rng_seed(&l.rng, seed);
    fprintf(stderr, "INFO: Seed: %llu; %d kept inputs\n", seed, l.count);
    for (int i = 0; i < l.count; i++) {
        take(&l, &l.kept[i]);
        run(&l);
    }
    for (int64_t deadline = deadline_after(seconds); l.count && now_ns() < deadline;) {
        take(&l, &l.kept[below(&l, (size_t)l.count)]);
        mutate(&l);
        run(&l);
    }
    fprintf(stderr, "stat::number_of_executed_units: %ld\n", l.executions);
    for (int i = 0; i < l.count; i++)
        free(l.kept[i].data);
    unlink(path);
    return 0;
}
