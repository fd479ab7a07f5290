/* Maps keys to the flags of collectives: a table with open addressing. */
#ifndef CLOCK_FLAG_TABLE_H
#define CLOCK_FLAG_TABLE_H

#include <stdint.h>

struct flag_table {
    struct flag_entry {
        uint64_t key, value;
    } * entry;     /* [size] owned; key 0: free */
    uint64_t size; /* a power of two, more than twice the keys */
};

/* Makes a table for at most `keys` keys. Returns 0 if out of host memory. */
int flag_table_init(struct flag_table *table, uint64_t keys);
/* The value of a flag, 0 at first; key is not 0. */
uint64_t *flag_value(struct flag_table *table, uint64_t key);

#endif
