/* The number of cores that this process may use. If it is smaller than the number of emulated
 * devices, the devices share cores. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

int usable_cores(void); /* at least 1 */

#endif
