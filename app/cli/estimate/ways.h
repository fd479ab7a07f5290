/* The ways to train that `duet profile` and `duet estimate` compare: their results, and the output
 * of both commands. */
#ifndef CLI_ESTIMATE_WAYS_H
#define CLI_ESTIMATE_WAYS_H

#include "base/error.h"
#include "base/text/json.h"
#include "report/findings.h"
#include "trace/record.h"
#include "train/estimate/as_pytorch.h"
#include "train/estimate/need.h"

/* The ways of sharded data parallel are run only if --modes names them. */
enum { WAY_SINGLE, WAY_DP, WAY_LOSS_IN_FORWARD, WAY_DDP, WAY_ZERO_1, WAY_ZERO_2, WAY_FSDP, WAYS };

enum { WAY_TITLE = 96 }; /* bytes of a title */

/* "DP, loss in forward", "DP, fwd loss" and "dp_loss_in_forward", the name in JSON. Static
 * storage. */
const char *way_name(int way);
const char *way_brief(int way);
const char *way_key(int way);
/* "DP, output device 1, sharded reduce": the name with the options that change it. Returns text. */
const char *way_title(int way, const struct run_config *config, char text[WAY_TITLE]);
enum run_mode way_mode(int way);
/* Changes config to this way. */
void way_apply(int way, struct run_config *config);

struct ways {
    const struct run_config *config; /* borrowed */
    struct run_record run[WAYS];     /* devices 0: the way was left out or did not fit */
    char full[WAYS][ERROR_BYTES];    /* the error of a way that did not fit the memory, or "" */
    struct need need[WAYS];          /* what such a way would hold */
    struct as_pytorch pytorch[WAYS]; /* what PyTorch would hold; devices 0: unknown */
};

/* On the heap: the records are too large for a small stack. NULL: out of host memory, with the
 * error set. */
struct ways *ways_new(const struct run_config *config);
void ways_free(struct ways *ways);

/* The run of a way, or NULL if it has none. */
const struct run_record *way_run(const struct ways *ways, int way);

/* Records that a way with these settings failed with ERR_MEMORY, so that the other ways can run.
 * Keeps only its error, and prints what it held when memory ran out. */
void way_note_full(struct ways *ways, int way, const struct run_config *config, int width);

/* Counts what PyTorch would hold in DP, DDP and FSDP, or with --as pytorch in all ways. Does
 * nothing if no estimate is possible. */
int ways_count_as_pytorch(struct ways *ways, const struct run_config *config);

/* Adds the model to a heading, as "gpt2-xl of 1024 tokens". */
void ways_add_model(struct text *text, const struct run_config *config);

/* The arguments of profile_findings. */
struct profiled ways_profiled(const struct ways *ways, int details);

/* --as pytorch: prints Duet's and PyTorch's memory side by side; with --details for all ways. */
void ways_show_beside_pytorch(const struct ways *ways, const struct run_config *config);

/* Prints which ways fit into the devices' memory. */
void ways_show_what_fits(const struct ways *ways, const struct run_config *config, int width);

/* Writes the list `runs` of --json: for each way its record, or that it does not fit; with --as
 * pytorch also what PyTorch would hold. A results_body (cli/results/files.h). */
void ways_write(const void *what, struct json_writer *w);

#endif
