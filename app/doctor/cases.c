/* Runs the test cases of an op: see cases.h. */
#include "doctor/cases.h"

#include <string.h>

#include "base/error.h"

static int run_case(struct op_cases *all, const struct case_list *list, enum op op, int i) {
    int turns = list->turns ? list->turns : 1, width = (int)strlen(list->letters);
    struct op_case c = {.all = all,
                        .list = list,
                        .op = op,
                        .row = i / turns,
                        .turn = i % turns,
                        .step = {.seed = all->seed, .step = 0x100000007}};
    memset(c.dim, 0xff, sizeof c.dim);
    for (int k = 0; k < width; k++)
        c.dim[(int)list->letters[k]] = list->sizes[c.row * width + k];
    c.dim['n'] = 1;
    for (const char *letter = list->rest; letter && *letter; letter++)
        c.dim['n'] *= c.dim[(int)*letter];
    CHECK(case_make(&c));
    CHECK(all->run(all, op, &c.a, c.terms));
    case_forget(all);
    return OK;
}

static int run_list(struct op_cases *all, const struct case_list *list, enum op op) {
    int count = list->count * (list->turns ? list->turns : 1);
    if (op < list->first || op > list->last || (list->when == ONLY_LARGE && !all->large) ||
        (list->when == ONLY_N16_THINNED && all->layout != LAYOUT_N16))
        return OK;
    for (int i = 0; i < count; i += all->quick && list->when != ALWAYS ? 3 : 1)
        CHECK(run_case(all, list, op, i));
    return OK;
}

int op_cases(struct op_cases *all, enum op op) {
    const struct case_list *const lists[] = {element_cases, row_cases, product_cases, move_cases};
    for (int i = 0; i < CASE_COUNT(lists); i++)
        for (const struct case_list *list = lists[i]; list->count; list++)
            CHECK(run_list(all, list, op));
    return OK;
}
