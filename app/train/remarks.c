/* Prints the remarks below the epochs of a run. */
#include "train/remarks.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/program_name.h"
#include "base/text/text.h"

/* What the numbers of a run do not show: samples used twice, and bits that other modes may not
 * share. compare prints its remarks itself. */
void remarks_print(const struct session *s, const struct progress *p) {
    const struct run_record *r = s->record;
    const char *title = p->title;
    if (s->config->unremarked) return;
    if (p->shown && s->halves && !s->config->warned)
        printf("%-6s weights of %s in %s: they are read as float32\n", title, s->halves,
               run_weights(s->config));
    if (!p->shown || s->config->hashes) return;
    if (s->config->steps > p->steps)
        printf("%-6s stopped after %d epoch%s = %d steps, before --steps %d: give more --epochs\n",
               title, p->epochs, p->epochs > 1 ? "s" : "", p->steps, s->config->steps);
    if (r->duplicates)
        printf("%-6s %d duplicates per epoch: the order is padded to a multiple of %d\n", title,
               r->duplicates, split_replicas(&s->split));
    struct text text = {""};
    if (!r->bits_promised)
        text_add(&text, "%-6s equal bits are not promised: %s", title, r->why_not);
    else if (*r->sum_order)
        text_add(&text, "%-6s gradients are added in the order of %s", title, r->sum_order);
    if (*text.words) text_wrap(stdout, TEXT_USUAL, 0, 7, text.words);
}

void remarks_warn_of_gpus(const struct session *s) {
    const char *fault = "", *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    if (s->gpus && s->ranks > 1 && !s->rank && blocking && atoi(blocking))
        fprintf(stderr,
                "%s: warning: CUDA_LAUNCH_BLOCKING=%s: after an allreduce a launch waits in the "
                "driver for the other ranks, where neither --timeout nor Ctrl-C can end it: unset "
                "it once the failing kernel is known\n",
                program_name(), blocking);
    for (int i = 0; i < s->device_count && !*fault; i++)
        fault = device_p2p_fault(s->device[i]);
    if (*fault && !s->rank) fprintf(stderr, "%s: warning: %s\n", program_name(), fault);
}
