/* Finds the files of a data set and checks that images and labels belong together. */
#include "data/dataset_kinds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "data/idx.h"

enum { PATH_BYTES = 4096 };

static const char *const names[] = {"fashion-mnist", "mnist"};

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
    *set = (struct dataset){.name = name,
                            .count = images.size[0],
                            .shape = {1, images.size[1], images.size[2]},
                            .classes = classes_of(labels.data, labels.size[0]),
                            .images = images.data,
                            .labels = labels.data,
                            .owned = {images.data, labels.data}};
    return OK;
out:
    idx_free(&images);
    idx_free(&labels);
    return code;
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
static int not_found(const struct dataset_config *config, const char *name) {
    const char *folder = config->folder;
    int fashion = !strcmp(name, "fashion-mnist");
    return fail(ERR_FAILED, "data set not found: %s%s%s: %smake data downloads it, %s", name,
                folder ? " in " : "", folder ? folder : "",
                fashion ? "apt install dataset-fashion-mnist (Debian, Ubuntu), " : "",
                config->of_program
                    ? "or put its IDX files in the folder given, or use synthetic data"
                    : "--data-dir DIR names the folder of its IDX files, --dataset "
                      "synthetic needs none");
}

/* Where files are searched if no folder was named. */
static const char *const folders[] = {"data", "datasets", "/usr/share/datasets"};
enum { FOLDERS = sizeof folders / sizeof *folders };

static const char *name_of(const struct dataset_config *config) {
    return !strcmp(config->name, names[0]) ? names[0] : names[1]; /* static storage */
}

/* Folder i of those where the set may be; NULL: there are no more. */
static const char *folder_of(const struct dataset_config *config, int i, char text[64]) {
    if (config->folder || i >= FOLDERS) return i ? NULL : config->folder;
    snprintf(text, 64, "%s/%s", folders[i], name_of(config));
    return text;
}

int dataset_files(struct dataset *set, const struct dataset_config *config, int train) {
    const char *name = name_of(config), *folder;
    char text[64];
    int found = 0;
    for (int i = 0; !found && (folder = folder_of(config, i, text)); i++)
        CHECK(open_in(set, name, folder, train, &found));
    return found ? OK : not_found(config, name);
}

struct sample_shape dataset_files_shape(const struct dataset_config *config) {
    char path[PATH_BYTES], text[64];
    const char *folder;
    struct sample_shape shape = {0};
    struct idx images = {0};
    int found = 0;
    for (int i = 0; !found && (folder = folder_of(config, i, text)); i++)
        found = find_file(path, folder, "train-images-idx3-ubyte");
    if (found && !idx_open(&images, path, 3))
        shape = (struct sample_shape){1, images.size[1], images.size[2]};
    idx_free(&images);
    return shape;
}
