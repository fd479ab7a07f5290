/* How the value of a flag is read into the configuration: a reader for each kind of value. A new
 * kind gets its function in flag_readers.c and its name here. */
#ifndef CLI_FLAG_READERS_H
#define CLI_FLAG_READERS_H

#include "cli/flag_table.h"

flag_reader read_model, read_int, read_number, read_text, read_on, read_off, read_mode, read_join,
    read_virtual, read_math, read_init, read_optimizer, read_memory, read_reduce, read_seed,
    read_algorithm, read_shape, read_loss, read_hidden, read_sampler, read_host_serial, read_params,
    read_count, read_bytes, read_link;

#endif
