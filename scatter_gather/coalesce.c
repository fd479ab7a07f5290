/* Groups parameters into ranges of their arena; see coalesce.h. */
#include "scatter_gather/coalesce.h"

#include <stdlib.h>

#include "base/error.h"

int coalesce(const struct param_range *pieces, int n, size_t limit_bytes,
             struct param_range *groups) {
    int count = 0;
    size_t bytes = 0; /* bytes in the open group, groups[count - 1] */
    for (int i = 0; i < n; i++) {
        size_t size = pieces[i].count * sizeof(float);
        if (count == 0 || (bytes > 0 && bytes + size > limit_bytes)) {
            groups[count++] = pieces[i];
            bytes = size;
            continue;
        }
        struct param_range *open = &groups[count - 1];
        size_t first = open->first < pieces[i].first ? open->first : pieces[i].first;
        size_t end = open->first + open->count;
        if (end < pieces[i].first + pieces[i].count) end = pieces[i].first + pieces[i].count;
        *open = (struct param_range){first, end - first};
        bytes += size;
    }
    return count;
}

int coalesce_params(const struct param_set *set, int gradients, size_t limit_bytes,
                    struct param_range *groups, int *group_count) {
    int n = 0;
    *group_count = 0;
    struct param_range *pieces = malloc((size_t)(set->count > 0 ? set->count : 1) * sizeof *pieces);
    if (!pieces)
        return fail(ERR_MEMORY, "coalesce: out of host memory for %d parameters", set->count);
    for (int trains = gradients; trains <= 1; trains++)
        for (int i = 0; i < set->count; i++) {
            const struct param *p = &set->param[i];
            size_t first = gradients ? p->grad_offset : p->value_offset;
            if (param_trains(p) == trains) pieces[n++] = (struct param_range){first, p->count};
        }
    *group_count = coalesce(pieces, n, limit_bytes, groups);
    free(pieces);
    return OK;
}
