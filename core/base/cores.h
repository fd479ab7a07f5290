/* How many cores this process may use. Emulated devices share them where there are fewer. */
#ifndef BASE_CORES_H
#define BASE_CORES_H

int usable_cores(void); /* at least 1 */

#endif
