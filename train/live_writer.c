/* Writing the live page: see live_writer.h. */
#include "train/live_writer.h"

#include <stdio.h>

#include "base/error.h"

static const double READINGS_A_SECOND = 5;

int live_open(struct session *s) {
    const struct run_config *c = s->config;
    if (!c->live_fd) return OK;
    CHECK(live_page_map(&s->live_page, c->live_fd, 1));
    s->live = &s->live_page->run[c->live_run];
    return OK;
}

void live_close(struct session *s) {
    live_page_unmap(s->live_page);
    s->live_page = NULL;
    s->live = NULL;
}

void live_begin(struct session *s, int last_step) {
    const struct run_record *r = s->record;
    if (!s->live || !session_leads(s)) return;
    struct live_facts *f = &s->live->facts;
    *f = (struct live_facts){.mode = r->mode,
                             .devices = r->devices,
                             .batch_size = r->batch_size * r->passes,
                             .first_step = s->first_step,
                             .last_step = last_step,
                             .steps_per_epoch = r->steps_per_epoch,
                             .epochs = (last_step - 1) / r->steps_per_epoch + 1};
    snprintf(f->title, sizeof f->title, "%s%s", mode_title(r->mode),
             r->mode == MODE_DP && r->loss_in_forward ? ", loss in forward" : "");
    snprintf(f->model, sizeof f->model, "%s", r->model);
    snprintf(f->dataset, sizeof f->dataset, "%s", r->dataset);
    snprintf(f->kind, sizeof f->kind, "%s", r->kind);
    s->live->progress =
        (struct live_progress){.state = LIVE_TRAINING, .step = s->first_step, .last_accuracy = -1};
    __atomic_store_n(&s->live->begun, 1, __ATOMIC_RELEASE);
}

/* A store never comes before the version that announces it. */
#define PUT(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)
static void put_number(double *place, double value) {
    __atomic_store(place, &value, __ATOMIC_RELEASE);
}

static void put_device(struct live_device *to, struct device *device, const struct device_record *d,
                       int64_t trained_ns) {
    struct ledger memory = device_ledger(device);
    live_write_begin(&to->version);
    PUT(to->trained_ns, trained_ns);
    PUT(to->memory, memory.total);
    PUT(to->memory_peak, memory.total_peak);
    PUT(to->capacity, memory.capacity);
    PUT(to->busy_ns, d->busy_ns);
    PUT(to->wait_ns, d->wait_ns);
    PUT(to->comm_ns, d->comm_ns);
    PUT(to->no_core_ns, d->no_core_ns);
    for (int p = 0; p < PHASE_COUNT; p++)
        PUT(to->phase_ns[p], d->phase_ns[p]);
    live_write_end(&to->version);
}

static void put_losses(struct live_run *live, const struct run_record *r) {
    uint64_t first = live->losses;
    for (uint64_t i = first; i < (uint64_t)r->steps; i++)
        put_number(&live->loss[i % LIVE_LOSSES], r->losses[i]);
    __atomic_store_n(&live->losses, (uint64_t)r->steps, __ATOMIC_RELEASE);
}

static void put_devices(struct session *s, double trained) {
    for (int i = 0; i < s->device_count; i++) {
        int d = s->first_device + i;
        put_device(&s->live->device[d], s->device[i], &s->record->device[d],
                   (int64_t)(trained * 1e9));
    }
}

void live_measured(struct session *s, double epoch_seconds) {
    const struct run_record *r = s->record;
    if (!s->live) return;
    put_devices(s, r->training_seconds + epoch_seconds);
    if (!session_leads(s) || !r->steps) return;
    struct live_progress *p = &s->live->progress;
    put_losses(s->live, r);
    live_write_begin(&p->version);
    PUT(p->step, r->first_step + r->steps);
    PUT(p->images, r->images);
    put_number(&p->seconds, r->training_seconds + epoch_seconds);
    put_number(&p->last_loss, r->losses[r->steps - 1]);
    live_write_end(&p->version);
}

void live_state(struct session *s, enum live_state state) {
    if (!s->live || !session_leads(s)) return;
    live_write_begin(&s->live->progress.version);
    PUT(s->live->progress.state, state);
    live_write_end(&s->live->progress.version);
}

void live_epoch(struct session *s, double accuracy, double valid_loss) {
    const struct run_record *r = s->record;
    if (!s->live) return;
    put_devices(s, r->training_seconds);
    if (!session_leads(s)) return;
    struct live_progress *p = &s->live->progress;
    int n = p->epochs, place = n % LIVE_EPOCHS;
    PUT(s->live->epoch[place].step, r->first_step + r->steps);
    put_number(&s->live->epoch[place].accuracy, accuracy);
    live_write_begin(&p->version);
    PUT(p->epochs, n + 1);
    put_number(&p->seconds, r->training_seconds);
    put_number(&p->last_accuracy, accuracy);
    put_number(&p->last_valid_loss, valid_loss);
    live_write_end(&p->version);
}

int live_pace(struct session *s, int steps, double seconds, int most, int *pace) {
    int all[MAX_DEVICES], mine = most;
    *pace = most;
    if (!s->live) return OK;
    double wanted = seconds > 0 ? steps / seconds / READINGS_A_SECOND : 1;
    if (wanted < most) mine = wanted < 1 ? 1 : (int)wanted;
    if (s->ranks > 1)
        CHECK(comm_gather(s->comm, &mine, sizeof mine, all));
    else
        all[0] = mine;
    *pace = all[0];
    return OK;
}
