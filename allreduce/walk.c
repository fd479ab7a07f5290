/* Walks over plans; see walk.h. */
#include "allreduce/walk.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/text/text.h"

/* flags[reader][kind][writer] is the epoch that was posted last. */
typedef uint32_t flag_table[MAX_DEVICES][PLAN_FLAG_KINDS][MAX_DEVICES];

/* Free space in mailboxes and slots is posted before any call. */
static void post_credits(flag_table flags, const struct plan *plans, int n) {
    for (int reader = 0; reader < n; reader++)
        for (int writer = 0; writer < n; writer++)
            flags[reader][PLAN_TAKEN][writer] = flags[reader][PLAN_LEFT][writer] = plans[0].credits;
}

static void post_flags(flag_table flags, const struct plan *plan, const struct plan_step *s) {
    for (int r = 0; r < plan->n; r++)
        if (s->post_ranks >> r & 1) flags[r][s->post_kind][plan->rank] = s->post_epoch;
}

/* The first rank that the step still waits for; -1: none, it may go on. */
static int missing(flag_table flags, const struct plan *plan, const struct plan_step *s) {
    for (int w = 0; w < plan->n; w++)
        if (s->wait_ranks >> w & 1 && flags[plan->rank][s->wait_kind][w] < s->wait_epoch) return w;
    return -1;
}

static int deadlock(const struct plan *plans, int n, const int *at, flag_table flags) {
    char text[400] = "";
    for (int r = 0; r < n; r++) {
        if (at[r] == plans[r].step_count) continue;
        const struct plan_step *s = &plans[r].steps[at[r]];
        text_append(text, sizeof text, "%srank %d at step %d for flag %s of rank %d",
                    *text ? ", " : "", r, at[r], plan_flag_name((enum plan_flag)s->wait_kind),
                    missing(flags, &plans[r], s));
    }
    return fail(ERR_FAILED, "%s plan: deadlock: %s: a bug in the planner", plan_name(&plans[0]),
                text);
}

int plan_walk(const struct plan *plans, int n, plan_walk_step *step, void *context) {
    flag_table *flags = calloc(1, sizeof *flags);
    if (!flags) return fail(ERR_MEMORY, "plans: out of host memory for flags: free some");
    int at[MAX_DEVICES] = {0}, code = OK, ended = 0, moved = 1;
    post_credits(*flags, plans, n);
    while (moved && ended < n) {
        moved = ended = 0;
        for (int r = 0; r < n; r++) {
            const struct plan *p = &plans[r];
            for (; at[r] < p->step_count && missing(*flags, p, &p->steps[at[r]]) < 0; at[r]++) {
                CHECK_GOTO(step(context, r, at[r]), code, out);
                post_flags(*flags, p, &p->steps[at[r]]);
                moved = 1;
            }
            ended += at[r] == p->step_count;
        }
    }
    if (ended < n) code = deadlock(plans, n, at, *flags);
out:
    free(flags);
    return code;
}
