/* Recorded steps: a step launches the same kernels every time, so a device that can record (CUDA
 * graphs) records them once and then replays them with one call. A LeNet step is about thirty
 * kernels of a few microseconds each; launched one by one they cost the host more time than the
 * GPU.
 *
 *     recorded_begin(&recorded, &key, 1);
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
 * A step may have several parts, each with its own enter and leave, and work between them that is
 * not recorded: plain DP records forward and backward, but not the gather, loss and scatter between
 * them. The parts of a step go through the stages together, because a later part works on the
 * tape that an earlier one has written.
 *
 * A recording holds addresses, so it is void once the memory behind one of them has moved. Each
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

enum { RECORDED_STEPS = 16, RECORDED_PARTS = 2, RECORDED_TAPES = 2 };

/* What a recording stands for. Steps with equal keys must enqueue the same work. */
struct recorded_key {
    int kind;                 /* what is done; the caller's number: train, evaluate, update, ... */
    const void *source;       /* what else is read by address, as a data set; NULL: nothing */
    struct segments segments; /* count 0: the batch plays no part */
};

enum recorded_stage { STAGE_PLAIN, STAGE_RECORDED, STAGE_REPLAYED };

struct recorded_step {
    struct recorded_key key;
    int settled; /* 1: a plain step with this key has moved no memory */
    struct recording *part[RECORDED_PARTS];
    struct tensor output; /* for the work between the parts; see recorded_output */
    uint64_t used;        /* `clock` when this step was last used */
};

struct recorded {
    struct stream *stream;
    const duet_tape *tape[RECORDED_TAPES]; /* whose arenas are read by address; borrowed or NULL */
    const struct param_set *params;        /* whose layout is read by address; borrowed or NULL */
    int on;                                /* 0: every step is plain */
    uint64_t version;                      /* of all that memory, at the last step */
    uint64_t clock;                        /* steps begun */
    struct recorded_step step[RECORDED_STEPS];
    int count; /* of step[] in use */

    /* The step under way. */
    struct recorded_step *now;
    enum recorded_stage stage;
    int part, parts;         /* the part that is next or under way, and how many there are */
    const char *name;        /* of that part */
    int recording;           /* 1: between enter and leave of a part that is being recorded */
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
/* Names a second tape whose memory is read by address. */
void recorded_watch(struct recorded *r, const duet_tape *tape);

/* Begins a step of `parts` parts and decides its stage. A step that was given up after some of its
 * parts is forgotten by the next begin. */
enum recorded_stage recorded_begin(struct recorded *r, const struct recorded_key *key, int parts);

/* Begins the step's next part. Returns 1 if the caller must enqueue its work on the stream now,
 * which may be nothing but launches, copies and event records; 0 if not. recorded_leave must follow
 * in both cases, also after an error in between: it is what ends a recording.
 * name: of the replay's span, static storage. */
int recorded_enter(struct recorded *r, const char *name);

/* Ends the part; `code` is that of the work since recorded_enter, OK where there was none. Returns
 * the first failure of enter, work and leave, with its text. */
int recorded_leave(struct recorded *r, int code);

/* Where a part leaves its output for the work between the parts. When the step is replayed it still
 * names the memory that the recorded step wrote. */
struct tensor *recorded_output(struct recorded *r);

/* 1 while work is being recorded: it will run with the replay, not now. */
int recorded_is_recording(const struct recorded *r);

#ifdef __cplusplus
}
#endif
#endif
