/* The addresses of dry devices. Bit 55 is set in all of them. On x86-64 no process has such an
 * address: it is not canonical, or, with five levels of page tables, above all addresses that the
 * kernel assigns by default. On aarch64 it belongs to the kernel. So nothing need be reserved, and
 * a device may be larger than the machine's memory. */
#include <stdint.h>

#include "device/host/host.h"

enum { NOWHERE_BIT = 55, DEVICE_BITS = 48 }; /* 256 TiB for each device */

static char *nowhere(int index) {
    return (char *)(((uintptr_t)1 << NOWHERE_BIT) + ((uintptr_t)index << DEVICE_BITS));
}

char *dry_memory(int index) {
    return nowhere(index);
}

char *dry_host_memory(void) {
    return nowhere(MAX_DEVICES);
}

char *dry_imported(void) {
    return nowhere(MAX_DEVICES + 1);
}
