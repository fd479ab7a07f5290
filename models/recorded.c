/* Recorded steps: which stage a step is in, and the few recordings that are kept; recorded.h
 * explains both. */
#include "models/recorded.h"

#include <string.h>

#include "base/error.h"

void recorded_init(struct recorded *r, struct device *device, const duet_tape *tape,
                   const struct param_set *params, int wanted) {
    memset(r, 0, sizeof *r);
    r->stream = device_compute(device);
    r->tape = tape;
    r->params = params;
    r->on = wanted && device_can_record(device) && !device_config(device)->spans;
}

/* The versions only grow, so their sum changes whenever one of them does. */
static uint64_t version_now(const struct recorded *r) {
    const struct sum_pieces *sums = r->params ? r->params->sums : NULL;
    return tape_arena_version(r->tape) + (r->params ? r->params->layout_version : 0) +
           (sums ? sums->version : 0);
}

static void drop(struct recorded_step *step) {
    recording_free(step->recording);
    memset(step, 0, sizeof *step);
}

void recorded_free(struct recorded *r) {
    for (int i = 0; i < r->count; i++)
        drop(&r->step[i]);
    memset(r, 0, sizeof *r);
}

/* ---- the steps that are kept ---- */

static int same_key(const struct recorded_key *a, const struct recorded_key *b) {
    if (a->kind != b->kind || a->source != b->source || a->segments.count != b->segments.count)
        return 0;
    for (int i = 0; i < a->segments.count; i++)
        if (a->segments.seg[i].v != b->segments.seg[i].v ||
            a->segments.seg[i].n != b->segments.seg[i].n)
            return 0;
    return 1;
}

/* The step with this key; else a new one, in place of the least recently used. */
static struct recorded_step *find(struct recorded *r, const struct recorded_key *key) {
    struct recorded_step *oldest = &r->step[0];
    for (int i = 0; i < r->count; i++) {
        if (same_key(&r->step[i].key, key)) return &r->step[i];
        if (r->step[i].used < oldest->used) oldest = &r->step[i];
    }
    struct recorded_step *step = r->count < RECORDED_STEPS ? &r->step[r->count++] : oldest;
    drop(step);
    step->key = *key;
    return step;
}

void recorded_forget(struct recorded *r) {
    for (int i = 0; i < r->count; i++)
        drop(&r->step[i]);
    r->count = 0;
}

/* ---- a step ---- */

enum recorded_stage recorded_begin(struct recorded *r, const struct recorded_key *key) {
    r->version_before = version_now(r);
    if (r->version_before != r->version) recorded_forget(r);
    r->version = r->version_before;
    r->now = find(r, key);
    r->now->used = ++r->clock;
    r->stage = !r->on || !r->now->settled ? STAGE_PLAIN
               : r->now->recording        ? STAGE_REPLAYED
                                          : STAGE_RECORDED;
    return r->stage;
}

int recorded_enter(struct recorded *r, const char *name) {
    r->name = name;
    r->enter_code = OK;
    if (r->stage == STAGE_PLAIN) return 1;
    if (version_now(r) != r->version_before) {
        r->enter_code = fail(ERR_FAILED,
                             "%s: memory of the recorded step has moved since the step began: give "
                             "--no-graph",
                             name);
        return 0;
    }
    if (r->now->recording) return 0;
    r->enter_code = stream_record_begin(r->stream);
    r->recording = !r->enter_code;
    return r->recording;
}

/* Ends the recording, and keeps it unless its work has failed. Ending it may fail too: the text
 * that stays is that of the first failure. */
static int end_recording(struct recorded *r, int code) {
    struct failures first = {0};
    r->recording = 0;
    if (!code) return stream_record_end(r->stream, &r->now->recording);
    failures_add(&first, code);
    stream_record_end(r->stream, NULL);
    return failures_end(&first);
}

int recorded_leave(struct recorded *r, int code) {
    CHECK(r->enter_code);
    if (r->recording) code = end_recording(r, code);
    CHECK(code);
    if (r->stage != STAGE_PLAIN) return stream_replay(r->stream, r->now->recording, r->name);
    r->now->settled = version_now(r) == r->version_before;
    return OK;
}

int recorded_is_recording(const struct recorded *r) {
    return r->recording;
}
