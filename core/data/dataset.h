/* Data sets: all samples with their labels or targets, in host memory. */
#ifndef DATA_DATASET_H
#define DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "data/sample_shape.h"

/* A model for a data set has at least this many classes, whatever the labels are. A few images of
 * Fashion-MNIST need not cover all ten classes. */
enum { DATASET_CLASSES = 10 };
enum { LABEL_IGNORED = -100 }; /* DUET_IGNORED of duet/functions.h */

/* The name of a data set that a program supplies. */
#define DATASET_OWN "own"

struct dataset {
    const char *name; /* "fashion-mnist", "mnist", "synthetic", "random", "own", or a file's */
    int count;        /* samples */
    struct sample_shape shape; /* shape of each sample */
    int classes;               /* 1 + the largest label; 0: the samples have targets */
    /* A data set holds either bytes, */
    const uint8_t *images; /* (count, C, H, W), row-major, one byte per pixel */
    const uint8_t *labels; /* (count), each below `classes`; NULL: the set has `answers` */
    void *owned[2];        /* the memory that dataset_free frees, of either kind */
    /* or numbers, which are used unchanged. */
    const float *numbers; /* (count, C, H, W); NULL: the set is bytes */
    const void *answers;  /* labels I32 (count, positions), or targets F32 (count, outputs) */
    int outputs;          /* numbers per target; 0: the set has labels */
    int positions;        /* labels of a sample; 0: one */
    int ignored;          /* 1: some labels are LABEL_IGNORED, which do not count */
    /* Instead of arrays, a program's set may have a function that makes sample `index`: C*H*W bytes
     * or numbers, and its answer. Several threads may call it at once. It returns 0, or a code that
     * ends the loading. */
    int (*read)(void *context, int index, void *sample, void *answer);
    void *read_context;
    int read_bytes; /* 1: the function makes bytes */
    /* Memory of either kind that dataset_free unmaps (data/shared_dataset.h). */
    void *map;
    size_t map_bytes;
    int outline; /* 1: only sizes (dataset_outline); no sample may be read */
};

/* Numbers per answer: those of a target, or the labels. */
static inline int dataset_answer_count(const struct dataset *set) {
    return set->outputs ? set->outputs : set->positions ? set->positions : 1;
}

/* Label number `position` of a sample, if the set has labels and is not an outline. */
static inline int dataset_label(const struct dataset *set, int index, int position) {
    size_t at = (size_t)index * (size_t)dataset_answer_count(set) + (size_t)position;
    return set->answers ? ((const int32_t *)set->answers)[at] : set->labels[at];
}

/* Sets `ignored` from the labels, and `classes` to `most` or, if that is 0, to 1 + the largest
 * label. ERR_USAGE: a label is out of range. */
int dataset_count_classes(struct dataset *set, int most);

/* The number of outputs of a model for this set: the numbers per target, the classes that a program
 * specifies, or at least DATASET_CLASSES. */
int dataset_model_outputs(const struct dataset *set);

/* 1: the name has a dot or a slash, so it is the path of a file of tensors
 * (data/dataset_tensors.c). */
int dataset_is_file(const char *name);

/* A range of consecutive numbers in each sample. */
struct sample_part {
    int count, below; /* below: integers from 0 to below - 1, as tokens; 0: any */
    int most;         /* replaces `below` for a file's numbers that index tables of several sizes;
                       * 0: `below` holds */
};

/* Selects a data set. Members that are 0 or NULL are not set. */
struct dataset_config {
    const char *name; /* name or path of a file; must outlive the set */
    /* For "own": the data for training and for the test; count 0: none. */
    struct dataset own[2];
    const char *folder; /* where the IDX files are (--data-dir), raw or .gz */
    /* For the generated sets, synthetic and random: */
    struct sample_shape shape; /* default 1x28x28; a file's samples must have as many numbers */
    int classes;               /* default DATASET_CLASSES; with targets the numbers per target */
    int samples; /* training samples; default 60000 synthetic, 6400 random. The test part has a
                  * sixth as many, or none if random */
    /* For random, and for a file: */
    int targets;      /* 1: targets in position of labels */
    int binary;       /* 1: random targets are 1 where randn is above 0, else 0 */
    const char *loss; /* the loss's name in errors; NULL: mse or cross-entropy */
    int positions;    /* labels of a sample; 0: one */
    /* All parts of a sample, in order, if some numbers are integers. A file must match them. */
    const struct sample_part *parts;
    int part_count; /* 0: all numbers are from randn */
    int outline;    /* 1: only for dataset_outline, so any size is valid */
    int of_program; /* 1: errors name duet_dataset_open, not the command's options */
    uint64_t seed;  /* seed of the draws; synthetic images have their own */
};

/* 1: the parts describe samples of this many numbers. Otherwise the model is refused later. */
static inline int dataset_has_parts(const struct dataset_config *config, size_t numbers) {
    size_t all = 0;
    for (int i = 0; i < config->part_count; i++)
        all += (size_t)config->parts[i].count;
    return config->part_count && all == numbers;
}

/* Opens nothing. ERR_USAGE: the data set does not exist, a setting does not apply to it, or the set
 * would be larger than 1 GiB. */
int dataset_check(const struct dataset_config *config);

/* The name of the requested loss, as in --loss. */
static inline const char *dataset_loss(const struct dataset_config *config) {
    return config->loss ? config->loss : config->targets ? "mse" : "cross-entropy";
}

/* Samples of the training part of a generated set; 0 for a set in files, which must be read. */
int dataset_made_samples(const struct dataset_config *config);
/* 0: the set has no test part. */
int dataset_has_test(const struct dataset_config *config);

/* The shape of the samples, before they are generated or read. For files it is in the header of the
 * training images. Zeros if the header cannot be read; dataset_make says why. */
struct sample_shape dataset_shape(const struct dataset_config *config);

/* Opens the training part (train = 1) or the test part (train = 0).
 *
 * It looks for files in `folder`, or if that is NULL in ./data/<name>, in ./datasets/<name> (where
 * `make data` puts them) and in Debian's /usr/share/datasets/<name>. "synthetic" has seed 0
 * (data/synthetic.h). "random" is drawn as PyTorch draws it, in this order:
 *
 *     torch.manual_seed(seed)
 *     samples = torch.randn(count, C, H, W)              or torch.randint(0, below, ...), part
 *               after part if a sample has several
 *     labels  = torch.randint(0, classes, (count,))      or targets = torch.randn(count, classes)
 *               torch.randint(0, classes, (count, positions)) for several per sample
 *
 * data/dataset_tensors.c reads a file of tensors.
 *
 * ERR_FAILED: the set was not found (the message names all ways to get it), or a file is broken.
 * ERR_USAGE as dataset_check. An open set does not change, so any thread may read it. */
int dataset_make(struct dataset *set, const struct dataset_config *config, int train);
/* dataset_make for a program; its errors name no options of the command. */
int dataset_open(struct dataset *set, const char *name, const char *folder, int train);

/* Makes a set that has only the number and shape of its samples, for a dry run. Arrays that
 * dataset_make would set are not NULL, but must not be read. ERR_USAGE as dataset_check, and for
 * files in a folder, whose sizes are unknown until they are read. It reads the header and the
 * answers of a file of tensors. */
int dataset_outline(struct dataset *set, const struct dataset_config *config, int train);

void dataset_free(struct dataset *set); /* takes a zeroed struct and one whose open failed */

#endif
