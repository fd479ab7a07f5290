/* Lists that grow. */
#ifndef BASE_GROW_H
#define BASE_GROW_H

#include <stddef.h>

/* Makes room for one more element. `items` is the address of a pointer to `count` elements of
 * `each` bytes, with capacity *room. ERR_MEMORY: "WHAT: out of host memory". */
int list_grow(const char *what, void *items, int count, int *room, size_t each);

#endif
