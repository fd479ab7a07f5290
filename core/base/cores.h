/* How many cores this process may use. If there are fewer cores than emulated devices, the devices
 * share them. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

int usable_cores(void); /* at least 1 */

#endif
