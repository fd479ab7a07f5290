/* Lists grow to a little more than twice their capacity each time. */
#include "base/grow.h"

#include <stdlib.h>

#include "base/error.h"

int list_grow(const char *what, void *items, int count, int *room, size_t each) {
    void **list = items;
    if (count < *room) return OK;
    int more = 2 * *room + 16;
    void *larger = realloc(*list, (size_t)more * each);
    if (!larger) return fail(ERR_MEMORY, "%s: out of host memory", what);
    *list = larger;
    *room = more;
    return OK;
}
