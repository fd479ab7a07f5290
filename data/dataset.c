/* Finds the files of a data set and checks that pictures and labels belong together. */
#include "data/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "data/idx.h"
#include "data/synthetic.h"

enum { PATH_BYTES = 4096, TRAIN_COUNT = 60000, TEST_COUNT = 10000 };

static const char *const names[] = {"fashion-mnist", "mnist", "synthetic"};

static int classes_of(const uint8_t *labels, int count) {
    int classes = 1;
    for (int i = 0; i < count; i++)
        if (labels[i] >= classes) classes = labels[i] + 1;
    return classes;
}

static int read_pair(struct dataset *set, const char *name, const char *images_path,
                     const char *labels_path) {
    struct idx images = {0}, labels = {0};
    int code;
    memset(set, 0, sizeof *set);
    CHECK_GOTO(idx_open(&images, images_path, 3), code, out);
    CHECK_GOTO(idx_open(&labels, labels_path, 1), code, out);
    if (images.size[0] != labels.size[0]) {
        code = fail(
            ERR_FAILED,
            "images and labels differ in number: %d in %s, %d in %s: give files of one data set",
            images.size[0], images_path, labels.size[0], labels_path);
        goto out;
    }
    CHECK_GOTO(idx_load(&images), code, out);
    CHECK_GOTO(idx_load(&labels), code, out);
    *set = (struct dataset){name,
                            images.size[0],
                            {1, images.size[1], images.size[2]},
                            classes_of(labels.data, labels.size[0]),
                            images.data,
                            labels.data,
                            {images.data, labels.data},
                            NULL,
                            0};
    return OK;
out:
    idx_free(&images);
    idx_free(&labels);
    return code;
}

int dataset_synthetic(struct dataset *set, uint64_t seed, int count, int train) {
    memset(set, 0, sizeof *set);
    size_t pixels = SYNTHETIC_SIDE * SYNTHETIC_SIDE;
    if (count < 1) return fail(ERR_USAGE, "synthetic pictures: %d: give at least 1", count);
    uint8_t *images = malloc((size_t)count * pixels), *labels = malloc((size_t)count);
    if (!images || !labels) {
        free(images);
        free(labels);
        return fail(ERR_MEMORY, "no memory for synthetic pictures: %d: use fewer", count);
    }
    synthetic_fill(seed, train ? 0 : 1, count, images, labels);
    *set = (struct dataset){"synthetic",       count,  {1, SYNTHETIC_SIDE, SYNTHETIC_SIDE},
                            SYNTHETIC_CLASSES, images, labels,
                            {images, labels},  NULL,   0};
    return OK;
}

/* Stores folder/file or folder/file.gz in `path`, whichever exists; 0 if neither does. */
static int find_file(char *path, const char *folder, const char *file) {
    static const char *const endings[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        int n = snprintf(path, PATH_BYTES, "%s/%s%s", folder, file, endings[i]);
        if (n < PATH_BYTES && access(path, F_OK) == 0) return 1;
    }
    return 0;
}

/* Opens the set in this folder. *found: at least one of its two files is there. */
static int open_in(struct dataset *set, const char *name, const char *folder, int train,
                   int *found) {
    char images[PATH_BYTES], labels[PATH_BYTES], image_file[32], label_file[32];
    snprintf(image_file, sizeof image_file, "%s-images-idx3-ubyte", train ? "train" : "t10k");
    snprintf(label_file, sizeof label_file, "%s-labels-idx1-ubyte", train ? "train" : "t10k");
    int has_images = find_file(images, folder, image_file),
        has_labels = find_file(labels, folder, label_file);
    *found = has_images || has_labels;
    if (!*found) return OK;
    if (!has_images || !has_labels)
        return fail(ERR_FAILED,
                    "data set not complete: %s has no %s[.gz]: get all four files, for example "
                    "with make data",
                    folder, has_images ? label_file : image_file);
    return read_pair(set, name, images, labels);
}

/* One line that names every way to get the data set. */
static int not_found(const char *name, const char *folder) {
    int fashion = !strcmp(name, "fashion-mnist");
    return fail(ERR_FAILED,
                "data set not found: %s%s%s: %smake data downloads it, --data-dir DIR names the "
                "folder of its IDX "
                "files, --dataset synthetic needs none",
                name, folder ? " in " : "", folder ? folder : "",
                fashion ? "apt install dataset-fashion-mnist (Debian, Ubuntu), " : "");
}

int dataset_open(struct dataset *set, const char *name, const char *folder, int train) {
    static const char *const places[] = {"data", "datasets", "/usr/share/datasets"};
    const char *known = NULL;
    memset(set, 0, sizeof *set);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(name, names[i])) known = names[i]; /* a constant, so that it outlives the set */
    if (!known)
        return fail(ERR_USAGE, "unknown data set: %s: use fashion-mnist, mnist or synthetic", name);
    if (!strcmp(known, "synthetic"))
        return dataset_synthetic(set, 0, train ? TRAIN_COUNT : TEST_COUNT, train);
    int found = 0;
    if (folder) {
        CHECK(open_in(set, known, folder, train, &found));
        return found ? OK : not_found(name, folder);
    }
    for (size_t i = 0; i < sizeof places / sizeof *places && !found; i++) {
        char place[64];
        snprintf(place, sizeof place, "%s/%s", places[i], known);
        CHECK(open_in(set, known, place, train, &found));
    }
    return found ? OK : not_found(name, NULL);
}

void dataset_free(struct dataset *set) {
    free(set->owned[0]);
    free(set->owned[1]);
    if (set->map) munmap(set->map, set->map_bytes);
    memset(set, 0, sizeof *set);
}
