/* The build found no NNG. */
#include "base/error.h"
#include "rpc/transport.h"

const struct transport *transport_of_build(void) {
    fail(ERR_FAILED, "rpc: this build has no transport: install libnng-dev and build again");
    return NULL;
}
