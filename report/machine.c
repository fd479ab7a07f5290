/* The machine of a run in words: see machine.h. */
#include "report/machine.h"

/* Two runs of the same training differ in speed by a few parts in a hundred also where nobody else
 * is at work. A share above that is worth a word. */
static const double BUSY = 0.05;

void add_devices(struct text *text, const struct run_record *r) {
    int shared = record_shared(r);
    text_add(text, "%s devices", r->kind);
    if (*r->modelled) text_add(text, ", times modelled: %s", r->modelled);
    if (shared && r->devices > shared)
        text_add(text, " (%d devices share %d %s%s)", r->devices, shared, r->gpus ? "GPU" : "core",
                 shared > 1 ? "s" : "");
}

int add_busy(struct text *text, int before, const char *title, const struct run_record *r) {
    double share = record_busy_machine(r);
    if (share < BUSY) return 0;
    text_add(text,
             before ? ", %s for %.0f %%"
                    : "the machine was busy: %s was without a core for %.0f %% of its time",
             title, 100 * share);
    return 1;
}
