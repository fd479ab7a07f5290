/* Records the programs of threads; see schedule.h. One lock guards everything, since a dry run
 * issues only a few thousand entries. */
#include "trace/schedule.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/grow.h"

struct schedule {
    pthread_mutex_t lock;
    struct program program[MOST_PROGRAMS];
    int count, failed;
    uint64_t events;
    uint64_t collectives[MAX_DEVICES]; /* how many each rank has made */
};

int schedule_new(struct schedule **out) {
    struct schedule *s = *out = calloc(1, sizeof *s);
    if (!s) return fail(ERR_MEMORY, "schedule: out of host memory");
    pthread_mutex_init(&s->lock, NULL);
    return OK;
}

void schedule_free(struct schedule *s) {
    if (!s) return;
    for (int i = 0; i < s->count; i++)
        free(s->program[i].list);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* The calling thread's program in that rank; NULL: there are too many. The lock is held. */
static struct program *own(struct schedule *s, int rank) {
    uintptr_t thread = (uintptr_t)pthread_self();
    for (int i = 0; i < s->count; i++)
        if (s->program[i].thread == thread && s->program[i].rank == rank) return &s->program[i];
    if (s->count == MOST_PROGRAMS) return s->failed = 1, NULL;
    struct program *p = &s->program[s->count++];
    *p = (struct program){.thread = thread, .rank = rank, .open = -1};
    return p;
}

static struct scheduled *append(struct schedule *s, struct program *p, const struct scheduled *e) {
    if (list_grow("schedule", &p->list, p->count, &p->capacity, sizeof *e))
        return s->failed = 1, NULL;
    p->list[p->count] = *e;
    if (p->open >= 0) { /* a part has its group's phase */
        p->list[p->open].parts++;
        p->list[p->count].facts.phase = p->list[p->open].facts.phase;
    }
    return &p->list[p->count++];
}

void schedule_add(struct schedule *s, const struct scheduled *entry) {
    pthread_mutex_lock(&s->lock);
    struct program *p = own(s, entry->facts.rank);
    if (p) append(s, p, entry);
    pthread_mutex_unlock(&s->lock);
}

void schedule_group_begin(struct schedule *s, const struct scheduled *group) {
    pthread_mutex_lock(&s->lock);
    struct program *p = own(s, group->facts.rank);
    struct scheduled *head = p ? append(s, p, group) : NULL;
    if (head) p->open = (int)(head - p->list);
    pthread_mutex_unlock(&s->lock);
}

void schedule_group_end(struct schedule *s, int rank) {
    pthread_mutex_lock(&s->lock);
    struct program *p = own(s, rank);
    if (p) p->open = -1;
    pthread_mutex_unlock(&s->lock);
}

void schedule_collective(struct schedule *s, int rank, enum scheduled_collective what, int ranks,
                         uint64_t bytes) {
    pthread_mutex_lock(&s->lock);
    struct program *p = own(s, rank);
    if (p && p->open >= 0) {
        struct scheduled *head = &p->list[p->open];
        head->collective = (uint8_t)what;
        head->key = s->collectives[rank]++;
        head->ranks = (int16_t)ranks;
        head->bytes = bytes;
    }
    pthread_mutex_unlock(&s->lock);
}

uint64_t schedule_new_event(struct schedule *s) {
    pthread_mutex_lock(&s->lock);
    uint64_t event = ++s->events;
    pthread_mutex_unlock(&s->lock);
    return event;
}

static int by_first_stream(const void *a, const void *b) {
    const struct program *p = a, *q = b;
    if (p->rank != q->rank) return p->rank - q->rank;
    return scheduled_stream(p->list) - scheduled_stream(q->list);
}

int schedule_programs(struct schedule *s, const struct program **out, int *count) {
    if (s->failed) return fail(ERR_MEMORY, "schedule: out of host memory for the calls of the run");
    qsort(s->program, (size_t)s->count, sizeof *s->program, by_first_stream);
    *out = s->program;
    *count = s->count;
    return OK;
}
