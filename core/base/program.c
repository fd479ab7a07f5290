/* Errors, time and random numbers for programs. The public error codes equal the internal ones. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/random.h"
#include "duet/train.h"

_Static_assert(DUET_OK == (int)OK && DUET_FAILED == (int)ERR_FAILED &&
                   DUET_USAGE == (int)ERR_USAGE && DUET_CHECK == (int)ERR_CHECK &&
                   DUET_MEMORY == (int)ERR_MEMORY && DUET_TIMEOUT == (int)ERR_TIMEOUT &&
                   DUET_PEER == (int)ERR_PEER,
               "duet.h repeats the codes of base/error.h");
_Static_assert(DUET_MAX_DEVICES == MAX_DEVICES, "duet.h repeats the limit");

const char *duet_version(void) {
    return DUET_VERSION;
}

const char *duet_error(void) {
    return error_message();
}

int duet_exit_status(int code) {
    return error_exit_status(code);
}

double duet_time(void) {
    return (double)now_ns() * 1e-9;
}

int duet_rng_create(duet_rng **out, uint64_t seed) {
    CHECK_OUT(out);
    *out = malloc(sizeof **out);
    if (!*out) return fail(ERR_MEMORY, "random numbers: out of host memory");
    rng_seed(&(*out)->engine, seed);
    return OK;
}

void duet_rng_free(duet_rng *rng) {
    free(rng);
}

void duet_rng_normal(duet_rng *rng, float *x, size_t count, double mean, double std) {
    if (rng && x) rng_normal(&rng->engine, x, count, mean, std);
}

void duet_rng_uniform(duet_rng *rng, float *x, size_t count, double from, double to) {
    if (rng && x) rng_uniform(&rng->engine, x, count, from, to);
}

/* torch.randint's own words; `low` and `high` are those of the caller. */
static int check_integers(const duet_rng *rng, const void *x, size_t count, int64_t low,
                          int64_t high) {
    if (!rng || (!x && count))
        return fail(ERR_USAGE, "integers: no %s given", rng ? "memory was" : "engine was");
    if (low < high) return OK;
    return fail(ERR_USAGE,
                "integers: expected 'from' to be less than 'to', but got from=%" PRId64
                " >= to=%" PRId64,
                low, high);
}

int duet_rng_integers(duet_rng *rng, enum duet_type type, void *x, size_t count, int64_t low,
                      int64_t high) {
    int32_t *small = x;
    int64_t *wide = x;
    CHECK(check_integers(rng, x, count, low, high));
    if (type != DUET_I32 && type != DUET_I64)
        return fail(ERR_USAGE, "integers: type %d: give DUET_I32 or DUET_I64", (int)type);
    if (type == DUET_I32 && (low < INT32_MIN || high - 1 > INT32_MAX))
        return fail(ERR_USAGE,
                    "integers: %" PRId64 " to %" PRId64 " are out of bounds for int: give DUET_I64",
                    low, high);
    for (size_t i = 0; i < count; i++) {
        int64_t drawn = rng_integer(&rng->engine, low, (uint64_t)high - (uint64_t)low);
        if (type == DUET_I32)
            small[i] = (int32_t)drawn;
        else
            wide[i] = drawn;
    }
    return OK;
}
