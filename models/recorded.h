/* Recorded steps: what a step launches is the same from step to step, so a device that can (CUDA
 * graphs) takes it down once and replays it with one call. A LeNet step is some thirty kernels
 * of a few microseconds each; enqueued one by one they cost the host more than the GPU.
 *
 * One step of one shape goes through three stages, all by the same function, the body:
 *
 *     plain       the body enqueues; on the way the tape's arena finds its size
 *     recorded    a plain step that moved no memory lies behind: the body is taken down, then replayed
 *     replayed    the body is not called at all
 *
 * "Shape" is the list of segments and what kind of step it is: an epoch has one for its full
 * batches and one for the last, evaluation two more. A step may be cut into parts, with work
 * between them that is no part of any recording (plain DP: forward; then gather, loss and
 * scatter of dL/dy; then backward). The parts of a step go through the stages together, since a
 * later part's body works on the tape that an earlier one's has written.
 *
 * What a recording holds are addresses. It is void once the memory behind one has moved: each
 * tape's arena and the layout of gradients have a version that grows then, and with any of them
 * all recordings are dropped. What changes from step to step without moving lies in the step
 * block, in device memory.
 *
 * On a device that cannot record, with spans on (a replay is one span: phases would vanish), or
 * where it is turned off, every step is plain. The bits are the same either way. One thread uses
 * a struct recorded: the one that owns the stream. */
#ifndef MODELS_RECORDED_H
#define MODELS_RECORDED_H

#include "nn/tape.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RECORDED_STEPS = 8, RECORDED_PARTS = 2, RECORDED_TAPES = 2 };

/* What a recording stands for. Steps with equal keys must enqueue the same. */
struct recorded_key {
    /* the caller's number for what is done: train, evaluate, update, ... */
    int kind;
    /* what else the launches read by address, as a data set; NULL: nothing */
    const void *source;
    struct segments segments; /* count 0: the batch plays no part */
};

/* Enqueues one part on the stream, and nothing else but event records. */
typedef int recorded_body(void *context);

enum recorded_stage { STAGE_PLAIN, STAGE_RECORDED, STAGE_REPLAYED };

struct recorded_step {
    struct recorded_key key;
    int settled; /* a plain step of this key has moved nothing */
    struct recording *part[RECORDED_PARTS];
    struct tensor output; /* the body may leave it here for work between the parts */
    uint64_t used;
};

struct recorded {
    struct stream *stream;
    const struct tape *tape[RECORDED_TAPES]; /* whose arenas are captured, borrowed; NULL: none */
    const struct param_set *params;          /* likewise */
    int on;
    uint64_t version; /* of the memory at the last step */
    uint64_t clock;
    struct recorded_step step[RECORDED_STEPS];
    int count;

    /* The step under way. */
    struct recorded_step *now;
    enum recorded_stage stage;
    int part, parts;
    int taking_down; /* the body runs, and the stream takes it down */
    uint64_t version_before;
};

/* wanted 0: every step is plain. tape and params may be NULL. */
void recorded_init(struct recorded *r, struct device *device, const struct tape *tape,
                   const struct param_set *params, int wanted);
/* zeroed is fine; the recordings only. Waits for their last replays */
void recorded_free(struct recorded *r);
/* drops all recordings: an event or a buffer of theirs is about to go */
void recorded_forget(struct recorded *r);
/* a second tape whose memory is captured */
void recorded_watch(struct recorded *r, const struct tape *tape);

/* Begins a step of `parts` parts and decides how it goes. Then recorded_part for each part, in
 * order; a step given up in between is forgotten with the next begin. name: of a replay's span,
 * static storage. */
enum recorded_stage recorded_begin(struct recorded *r, const struct recorded_key *key, int parts);
int recorded_part(struct recorded *r, const char *name, recorded_body *body, void *context);

/* A step of one part. */
int recorded_run(struct recorded *r, const struct recorded_key *key, const char *name,
                 recorded_body *body, void *context);

/* Where the body leaves its output for the work between the parts: that of the recorded step,
 * when it is replayed. */
struct tensor *recorded_output(struct recorded *r);

/* For the body and what it calls: 1 if it is being taken down, so that what it enqueues runs
 * with the replay. */
int recorded_is_recording(const struct recorded *r);

#ifdef __cplusplus
}
#endif
#endif
