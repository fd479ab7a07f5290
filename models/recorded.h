/* Recorded steps: a step launches the same kernels every time, so a device that can record (CUDA
 * graphs) records them once and then replays them with one call. A LeNet step is about thirty
 * kernels of a few microseconds each; launched one by one they cost the host more time than the
 * GPU.
 *
 *     recorded_begin(&recorded, &key);
 *     if (recorded_enter(&recorded, "forward and backward")) {
 *         code = ... enqueue the work ...
 *     }
 *     code = recorded_leave(&recorded, code);
 *
 * A step goes through three stages, and the lines above are the same in each:
 *
 *     plain       enter returns 1: the work is enqueued, and the tape's arena finds its size
 *     recorded    enter returns 1: an earlier plain step has moved no memory, so the work is
 *                 recorded now; leave replays the recording
 *     replayed    enter returns 0: the work is left out, and leave replays the recording
 *
 * Steps are told apart by a key: what is done (train, evaluate, update) and how the batch is cut
 * into segments. An epoch has one key for its full batches and one for its short last batch;
 * evaluation has two more.
 *
 * A recording is around all that a step does at once, or there is none: with DataParallel, which
 * gathers and scatters between forward and backward, no step is recorded.
 *
 * A recording holds addresses, so it is void once the memory behind one of them has moved. The
 * tape's arena and the layout of the gradients have a version that grows whenever they move; when
 * one has grown, all recordings are dropped. What changes from step to step without moving lies in
 * the step block in device memory.
 *
 * Every step stays plain on a device that cannot record, where recording is turned off, and where
 * spans are recorded (a replay is one span, so the phases would vanish). The bits are the same
 * either way. A struct recorded is used by one thread, the one that uses the stream. */
#ifndef MODELS_RECORDED_H
#define MODELS_RECORDED_H

#include "nn/tape/tape.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { RECORDED_STEPS = 16 };

/* What a recording stands for. Steps with equal keys must enqueue the same work. */
struct recorded_key {
    int kind;                 /* what is done; the caller's number: train, evaluate, update, ... */
    const void *source;       /* what else is read by address, as a data set; NULL: nothing */
    struct segments segments; /* count 0: the batch plays no part */
};

enum recorded_stage { STAGE_PLAIN, STAGE_RECORDED, STAGE_REPLAYED };

struct recorded_step {
    struct recorded_key key;
    int settled;                 /* 1: a plain step with this key has moved no memory */
    struct recording *recording; /* NULL: none yet */
    uint64_t used;               /* `clock` when this step was last used */
};

struct recorded {
    struct stream *stream;
    const duet_tape *tape;          /* whose arena is read by address; borrowed */
    const struct param_set *params; /* whose layout is read by address; borrowed or NULL */
    int on;                         /* 0: every step is plain */
    uint64_t version;               /* of all that memory, at the last step */
    uint64_t clock;                 /* steps begun */
    struct recorded_step step[RECORDED_STEPS];
    int count; /* of step[] in use */

    /* The step under way. */
    struct recorded_step *now;
    enum recorded_stage stage;
    const char *name;        /* of the replay's span */
    int recording;           /* 1: between enter and leave of a step that is being recorded */
    int enter_code;          /* what recorded_enter failed with; recorded_leave returns it */
    uint64_t version_before; /* of the memory, when the step began */
};

/* wanted 0: every step is plain. `params` may be NULL. All of it is borrowed. */
void recorded_init(struct recorded *r, struct device *device, const duet_tape *tape,
                   const struct param_set *params, int wanted);
/* Frees the recordings after waiting for their last replays. Zeroed is fine. */
void recorded_free(struct recorded *r);
/* Drops all recordings: call it before an event or a buffer that they use is freed. */
void recorded_forget(struct recorded *r);
/* Begins a step and decides its stage. */
enum recorded_stage recorded_begin(struct recorded *r, const struct recorded_key *key);

/* Returns 1 if the caller must enqueue the step's work on the stream now, which may be nothing but
 * launches, copies and event records; 0 if not. recorded_leave must follow in both cases, also
 * after an error in between: it is what ends a recording. name: of the replay's span, static
 * storage. */
int recorded_enter(struct recorded *r, const char *name);

/* Ends the step; `code` is that of the work since recorded_enter, OK where there was none. Returns
 * the first failure of enter, work and leave, with its text. */
int recorded_leave(struct recorded *r, int code);

/* 1 while work is being recorded: it will run with the replay, not now. */
int recorded_is_recording(const struct recorded *r);

#ifdef __cplusplus
}
#endif
#endif
