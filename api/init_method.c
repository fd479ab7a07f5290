/* init_process_group with PyTorch's arguments: where the ranks meet is an address or a file. Both
 * are no more than a name here, since all ranks are on one machine: nothing is opened. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"

/* Duet's own collectives take the place of all of them. */
static int check_backend(const char *backend) {
    static const char *const names[] = {"duet", "gloo", "nccl", "mpi"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!backend || !strcmp(backend, names[i])) return OK;
    return fail(ERR_USAGE, "init_process_group: backend %s: give gloo, nccl or mpi, or NULL",
                backend);
}

/* "tcp://127.0.0.1:29500" or "file:///tmp/job" as the name of a job. */
static int name_of(const char *init_method, char *name, size_t bytes) {
    int port = 0, used = 0, length = -1;
    if (!strncmp(init_method, "tcp://", 6)) {
        const char *host = init_method + 6, *colon = strrchr(host, ':');
        int is_here = !strncmp(host, "127.", 4) || !strncmp(host, "localhost:", 10) ||
                      !strncmp(host, "[::1]:", 6);
        if (!colon || sscanf(colon, ":%5d%n", &port, &used) != 1 || colon[used] || port < 1 ||
            port > 65535)
            return fail(ERR_USAGE,
                        "init_process_group: %s: give an address and a port, as "
                        "tcp://127.0.0.1:29500",
                        init_method);
        if (!is_here)
            return fail(ERR_USAGE,
                        "init_process_group: %s: several machines come later: give an address of "
                        "this one, as tcp://127.0.0.1:29500",
                        init_method);
        length = snprintf(name, bytes, "%s", init_method);
    } else if (!strncmp(init_method, "file:///", 8) && init_method[8]) {
        length = snprintf(name, bytes, "%s", init_method);
    }
    if (length > 0 && (size_t)length < bytes) return OK;
    return fail(ERR_USAGE,
                "init_process_group: init_method %.80s: give env://, tcp://127.0.0.1:PORT or "
                "file:///PATH",
                init_method);
}

/* env:// with the numbers given: only the address is the environment's. */
static void address_of_environment(char *name, size_t bytes) {
    const char *address = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    snprintf(name, bytes, "tcp://%s:%s", address ? address : "127.0.0.1", port ? port : "29500");
}

int duet_init_process_group(duet_group **out, const char *backend, const char *init_method,
                            int world_size, int rank, double timeout_s) {
    char name[512];
    CHECK_OUT(out);
    CHECK(check_backend(backend));
    int from_environment = !init_method || !strcmp(init_method, "env://");
    if (from_environment && world_size < 0 && rank < 0) return duet_group_init(out, timeout_s);
    if (world_size < 0 || rank < 0)
        return fail(ERR_USAGE, "init_process_group: world_size %d, rank %d: give both%s",
                    world_size, rank, from_environment ? ", or -1 for both" : "");
    if (from_environment)
        address_of_environment(name, sizeof name);
    else
        CHECK(name_of(init_method, name, sizeof name));
    return duet_group_join(out, name, rank, world_size, timeout_s);
}
