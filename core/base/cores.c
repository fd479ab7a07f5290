/* Counts the cores that this process may use; see cores.h. A container or taskset may allow fewer
 * than the machine has. */
#include "base/cores.h"

#include <sched.h>

int usable_cores(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}
