/* See modelled_steps.h. */
#include "cli/estimate/modelled_steps.h"

#include <string.h>

#include "base/error.h"
#include "train/estimate/retime.h"

int modelled_steps_open(struct modelled_steps *s, const struct run_paths *files, int pairs) {
    s->names.files = *files;
    if (modelled_steps_asked(s) && pairs > 1)
        return fail(ERR_USAGE,
                    "--trace, --report, --pictures: %d pairs of GPU and machine: they show the "
                    "steps of one: give one of each",
                    pairs);
    return run_files_open(&s->files, &s->names);
}

int modelled_steps_asked(const struct modelled_steps *s) {
    return *s->names.files.trace || *s->names.files.report || *s->names.files.pictures;
}

int modelled_steps_keep(struct modelled_steps *s, struct modelled *m, struct clock_config *clock,
                        const char *title) {
    struct run_record *r = m->record;
    r->timed = 1;
    CHECK(retime_put(r, m, clock, 1));
    for (int d = 0; d < r->devices; d++)
        r->device[d].memory.capacity = (uint64_t)(clock->gpu->gib * 0x1p30);
    s->title[s->count] = title;
    s->run[s->count++] = *m;
    memset(m, 0, sizeof *m);
    return OK;
}

static void no_results(const void *what, struct json_writer *w) {
    (void)what, (void)w;
}

int modelled_steps_write(struct modelled_steps *s) {
    struct page page = {.count = s->count};
    if (!s->count) return OK;
    for (int i = 0; i < s->count; i++)
        page.run[i] = (struct page_run){.title = s->title[i], .run = s->run[i].record};
    return run_files_write(&s->files, "estimate", no_results, NULL, &page);
}

void modelled_steps_free(struct modelled_steps *s) {
    run_files_abandon(&s->files);
    for (int i = 0; i < s->count; i++)
        modelled_close(&s->run[i]);
    s->count = 0;
}
