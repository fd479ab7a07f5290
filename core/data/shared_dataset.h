/* A data set in shared memory. A launcher unpacks it once, and all ranks of its jobs map it. If
 * each of eight ranks unpacked its own copy, that would take eight times the memory and, on two
 * cores, four times as long.
 *
 *     launcher    dataset_open(&set, ...); dataset_share(&set, &fd);    before it starts the ranks
 *     rank        dataset_map(&set, fd); ... dataset_free(&set);        fd is inherited
 *
 * The memory is a memfd: it has no name, and the system frees it when the last process that holds
 * it ends, even by a crash. */
#ifndef DATA_SHARED_DATASET_H
#define DATA_SHARED_DATASET_H

#include "data/dataset.h"

/* Copies an open set into a memfd and frees the set, also after a failure. The caller closes *fd,
 * which is -1 after a failure. ERR_MEMORY or ERR_FAILED: the system refused. */
int dataset_share(struct dataset *set, int *fd);

/* Maps a set that dataset_share in the same program has written; it is read-only. The descriptor
 * may be closed afterwards. */
int dataset_map(struct dataset *set, int fd);

#endif
