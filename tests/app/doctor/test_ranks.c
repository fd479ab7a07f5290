/* Tests faults between ranks: a rank that does not join, a wrong bit on one rank. Each is found,
 * and the row names the rank. */
#include "tests/app/doctor/shared.h"

/* ---- allreduce ---- */

enum { LEAST_ALGORITHMS = 8 }; /* 2 and 4 ranks together have more rows than this */

static int calls_made; /* calls made by rank 1 */

/* Rank 1 leaves out its calls from the fourth on, so that the others wait for it. */
static int forgetful(struct stream *stream, const char *span_name, uint64_t span_bytes,
                     host_function *function, const void *args, size_t args_bytes) {
    if (device_index(stream->device) == 1 && ++calls_made >= 4) return OK;
    return correct->call_host(stream, span_name, span_bytes, function, args, args_bytes);
}

static void forgets(struct device_ops *ops) {
    ops->call_host = forgetful;
}

Test(doctor_ranks, a_rank_that_does_not_come, .timeout = 200) {
    struct doctor_config config = faulty_config();
    config.timeout = test_short() ? 3 : 2; /* seconds; a rank's wait ends after half of that */
    plant = forgets;
    struct findings *f = examine(check_allreduce, &config);
    int off = findings_count(f, FINDING_OFF);
    cr_expect(!findings_count(f, FINDING_OK) && off > LEAST_ALGORITHMS,
              "every algorithm of both worlds is some calls short: %d", off);
    /* "did not finish within": the machine was too busy for the ranks' own deadline to pass */
    for (int i = 0; i < f->count; i++)
        cr_expect(f->row[i].state == FINDING_NOT_HERE ||
                      strstr(f->row[i].measured, "no word from rank") ||
                      strstr(f->row[i].measured, "did not finish within"),
                  "%s: %s", f->row[i].check, f->row[i].measured);
    findings_free(f);
}

static int wrong_end(struct stream *stream, struct device *to, void *destination,
                     struct device *from, const void *source, size_t bytes) {
    CHECK(correct->copy(stream, to, destination, from, source, bytes));
    CHECK(correct->sync(stream)); /* the communication stream has a thread of its own */
    if (!to && device_index(stream->device) == 1) ((unsigned char *)destination)[bytes / 2] ^= 1;
    return OK;
}

static void wrong_bit(struct device_ops *ops) {
    ops->copy = wrong_end;
}

Test(doctor_ranks, one_bit_of_one_rank, .timeout = 120) {
    struct findings *f = examine_faulty(check_allreduce, wrong_bit);
    for (int i = 0; i < f->count; i++)
        cr_expect(f->row[i].state == FINDING_NOT_HERE || strstr(f->row[i].measured, "rank 1: 1 of"),
                  "%s: %s", f->row[i].check, f->row[i].measured);
    cr_expect(!findings_count(f, FINDING_OK) && findings_count(f, FINDING_OFF) > LEAST_ALGORITHMS);
    findings_free(f);
}
