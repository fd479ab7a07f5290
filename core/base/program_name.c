/* The name of this program, which libc keeps: see program_name.h. */
#include "base/program_name.h"

#include <errno.h>

const char *program_name(void) {
    return program_invocation_short_name;
}
