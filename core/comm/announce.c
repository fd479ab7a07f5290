/* Before a rank begins a collective, it announces the call on the board, and compares it with its
 * peers' calls of the same number.
 *
 *     rank 0    #7 BARRIER (start of epoch)    #8 ALLREDUCE bucket 0, ... 5120 elements ...
 *     rank 1    #7 BARRIER (start of epoch)    #8 ALLREDUCE bucket 0, ... 5184 elements ...
 *
 * No rank waits. Each rank first publishes its own words and then reads those of the others, in one
 * order that all processors agree on. So if the calls of two ranks differ, at least the later one
 * sees the difference. Without this check a call that one rank leaves out would hang the others
 * with no explanation, and a different count would give wrong sums.
 *
 * A rank keeps its last ANNOUNCED calls. A peer that is further ahead has overwritten the call,
 * which then cannot be compared. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text/text.h"
#include "comm/rank.h"

enum { WORDS = sizeof(struct announced_call) / sizeof(uint64_t) };

/* A call as plain bytes that can be compared, pads and tails zero. */
union words {
    struct announced_call call;
    uint64_t word[WORDS];
};

static struct announcement *slot_of(const struct announcer *a, int k, uint64_t number) {
    return &a->shown[k][number % ANNOUNCED];
}

/* `number` is 0 while the call is being written: no word is stored before that 0 (release), and a
 * reader checks the number again after all words (acquire). */
static void publish(struct announcement *to, uint64_t number, const union words *call) {
    __atomic_store_n(&to->number, 0, __ATOMIC_SEQ_CST);
    for (int i = 0; i < WORDS; i++)
        __atomic_store_n(&to->word[i], call->word[i], __ATOMIC_RELEASE);
    __atomic_store_n(&to->number, number, __ATOMIC_SEQ_CST);
}

/* Like publish, but a later read of this rank may be reordered before it. */
static void publish_later(struct announcement *to, uint64_t number, const union words *call) {
    __atomic_store_n(&to->number, 0, __ATOMIC_RELAXED);
    for (int i = 0; i < WORDS; i++)
        __atomic_store_n(&to->word[i], call->word[i], __ATOMIC_RELEASE);
    __atomic_store_n(&to->number, number, __ATOMIC_RELEASE);
}

/* 1 if the rank has announced its call `number`, and still shows it. */
static int read_one(struct announcement *from, uint64_t number, union words *call) {
    if (__atomic_load_n(&from->number, __ATOMIC_SEQ_CST) != number) return 0;
    for (int i = 0; i < WORDS; i++)
        call->word[i] = __atomic_load_n(&from->word[i], __ATOMIC_ACQUIRE);
    return __atomic_load_n(&from->number, __ATOMIC_RELAXED) == number;
}

const char *comm_part(const char *collective) {
    static const char *const of_units[] = {"all-gather",     "all_gather",     "ALLGATHER",
                                           "reduce-scatter", "reduce_scatter", "REDUCE_SCATTER"};
    for (int i = 0; collective && i < 6; i++)
        if (!strncmp(collective, of_units[i], strlen(of_units[i]))) return "unit";
    return "bucket";
}

/* "ALLREDUCE bucket 1 step 7, 5120 elements from element 64, direct", "BARRIER (start of epoch)";
 * of a group "#3 BROADCAST, 8 elements, float32, source 1" */
static void describe_call(const struct announcer *a, uint64_t number, const union words *words,
                          char *text, size_t bytes) {
    const struct announced_call *call = &words->call;
    *text = 0;
    if (a->numbered) text_append(text, bytes, "#%llu ", (unsigned long long)number);
    text_append(text, bytes, "%s", call->collective);
    if (call->bucket >= 0)
        text_append(text, bytes, " %s %lld", comm_part(call->collective), (long long)call->bucket);
    if (call->step >= 0) text_append(text, bytes, " step %lld", (long long)call->step);
    if (call->count) text_append(text, bytes, ", %llu elements", (unsigned long long)call->count);
    if (call->count && !a->numbered)
        text_append(text, bytes, " from element %llu", (unsigned long long)call->offset);
    if (*call->what)
        text_append(text, bytes, call->count || a->numbered ? ", %s" : " (%s)", call->what);
}

static int rank_of(const struct announcer *a, int k) {
    return a->ranks ? a->ranks[k] : k;
}

/* comm_call.what and .collective: "end of": this rank leaves while the others continue. */
static int is_end(const struct announced_call *call) {
    static const char word[] = "end of ";
    return !strncmp(call->collective, word, strlen(word)) ||
           !strncmp(call->what, word, strlen(word));
}

/* Advice if the calls differ. A mere difference in tensor sizes has its own advice. */
static const char *advice(const struct announced_call *mine, const struct announced_call *theirs) {
    static const char uneven[] = ", uneven";
    struct announced_call sized = *theirs;
    if (is_end(mine) || is_end(theirs))
        return "one has ended, by its own error or with fewer batches: see its output, and "
               "give all ranks the same number of batches, or use duet_ddp_join";
    sized.count = mine->count, sized.offset = mine->offset;
    if (!memcmp(&sized, mine, sizeof sized))
        return "the sizes differ: all ranks must give tensors of one size";
    if (!strcmp(mine->collective, theirs->collective) &&
        !strstr(mine->what, uneven) != !strstr(theirs->what, uneven))
        return "one gives split sizes and the other none: give them on all ranks, or on none";
    return "all ranks must make the same calls in the same order";
}

/* The job ends here: a call that differs has no result. */
static int mismatch(struct announcer *a, uint64_t number, int peer, const union words *mine,
                    const union words *theirs) {
    char text[BOARD_TEXT], my_call[192], their_call[192];
    describe_call(a, number, mine, my_call, sizeof my_call);
    describe_call(a, number, theirs, their_call, sizeof their_call);
    snprintf(text, sizeof text,
             "Detected mismatch between collectives on ranks. Rank %d is running collective: %s, "
             "but Rank %d is running collective: %s: %s",
             rank_of(a, a->me), my_call, rank_of(a, peer), their_call,
             advice(&mine->call, &theirs->call));
    comm_abort(a->comm, ERR_FAILED, text);
    return fail(ERR_FAILED, "%s", text);
}

/* Compares call `number` of this rank with that of each peer that has announced it. If the job has
 * failed already, it has a reason. */
static int compare(struct announcer *a, uint64_t number, const union words *mine) {
    union words theirs;
    if (board_aborted(a->comm->board)) return OK;
    for (int k = 0; k < a->n; k++) {
        if (k == a->me || !read_one(slot_of(a, k, number), number, &theirs)) continue;
        if (memcmp(mine, &theirs, sizeof theirs)) return mismatch(a, number, k, mine, &theirs);
    }
    return OK;
}

void announced_fill(struct announced_call *out, const struct comm_call *call) {
    memset(out, 0, sizeof *out);
    strncpy(out->collective, call->collective, sizeof out->collective - 1);
    if (call->what) strncpy(out->what, call->what, sizeof out->what - 1);
    out->bucket = call->bucket;
    out->step = call->step;
    out->count = call->count;
    out->offset = call->offset;
}

static uint64_t mixed(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

uint64_t announced_signature(const struct announced_call *call) {
    union words words = {.call = *call};
    uint64_t hash = 0x243f6a8885a308d3u;
    for (int i = 0; i < WORDS; i++)
        hash = mixed(hash, words.word[i]);
    return hash;
}

int announcer_announce(struct announcer *a, const struct comm_call *call) {
    uint64_t number = ++a->number;
    union words mine;
    announced_fill(&mine.call, call);
    uint64_t signature = a->holds[number % ANNOUNCED] = announced_signature(&mine.call);
    a->tally = mixed(a->tally, signature);
    publish(slot_of(a, a->me, number), number, &mine);
    return compare(a, number, &mine);
}

void announcer_note(struct announcer *a, const struct announced_call *call, uint64_t signature) {
    uint64_t number = ++a->number, *holds = &a->holds[number % ANNOUNCED];
    a->tally = mixed(a->tally, signature);
    if (*holds == signature) { /* the text is there already: the same call, ANNOUNCED calls ago */
        __atomic_store_n(&slot_of(a, a->me, number)->number, number, __ATOMIC_RELEASE);
        return;
    }
    union words words = {.call = *call};
    publish_later(slot_of(a, a->me, number), number, &words);
    *holds = signature;
}

static uint64_t oldest_shown(uint64_t number) {
    return number > ANNOUNCED ? number - ANNOUNCED + 1 : 1;
}

void announcer_show_all(struct announcer *a) {
    for (uint64_t k = oldest_shown(a->number); k <= a->number; k++)
        __atomic_store_n(&slot_of(a, a->me, k)->number, k, __ATOMIC_SEQ_CST);
}

int announcer_look_back(struct announcer *a, uint64_t number) {
    union words mine;
    for (uint64_t k = oldest_shown(number); k <= number; k++)
        if (read_one(slot_of(a, a->me, k), k, &mine)) CHECK(compare(a, k, &mine));
    return OK;
}

int announce(struct comm *comm, const struct comm_call *call) {
    CHECK(announcer_announce(&comm->announcer, call));
    return call->group ? announcer_announce(call->group, call) : OK;
}
