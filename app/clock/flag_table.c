/* See flag_table.h. */
#include "clock/flag_table.h"

#include <stdlib.h>

int flag_table_init(struct flag_table *table, uint64_t keys) {
    for (table->size = 64; table->size <= 2 * keys; table->size *= 2)
        continue;
    table->entry = calloc(table->size, sizeof *table->entry);
    return table->entry != NULL;
}

uint64_t *flag_value(struct flag_table *table, uint64_t key) {
    uint64_t last = table->size - 1;
    uint64_t i = (key * 0x9e3779b97f4a7c15u >> 20) & last;
    while (table->entry[i].key && table->entry[i].key != key)
        i = (i + 1) & last;
    table->entry[i].key = key;
    return &table->entry[i].value;
}
