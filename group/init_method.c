/* init_process_group with PyTorch's arguments: where the ranks meet is an address or a file. Both
 * are no more than a name here, since all ranks are on one machine: nothing is opened. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "duet.h"
#include "nn/tensor.h"

/* Duet's own collectives take the place of all of them. */
static int check_backend(const char *backend) {
    static const char *const names[] = {"duet", "gloo", "nccl", "mpi"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!backend || !strcmp(backend, names[i])) return OK;
    return fail(ERR_USAGE, "init_process_group: backend %s: give gloo, nccl or mpi, or NULL",
                backend);
}

/* 1: a number without sign or space, and nothing behind it. */
static int is_port(const char *text) {
    size_t digits = strspn(text, "0123456789");
    long port = digits && digits < 6 && !text[digits] ? strtol(text, NULL, 10) : 0;
    return port >= 1 && port <= 65535;
}

/* One spelling for the names of the loopback address, so that "localhost" and "127.0.0.1" meet. */
static const char *spelling_of(const char *host) {
    int is_loopback = !strcmp(host, "localhost") || !strcmp(host, "[::1]") || !strcmp(host, "::1");
    return is_loopback ? "127.0.0.1" : host;
}

static int is_of_this_machine(const char *host) {
    struct in_addr a;
    return inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127;
}

/* "tcp://localhost:29500" as the name of a job, with one spelling of each address. The port has no
 * zeros in front: "029500" is 29500. */
static int name_of_address(const char *init_method, char *name, size_t bytes) {
    char host[64];
    const char *text = init_method + strlen("tcp://"), *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    if (!length || length >= sizeof host || !is_port(colon + 1))
        return fail(ERR_USAGE,
                    "init_process_group: %.80s: give an address and a port, as "
                    "tcp://127.0.0.1:29500",
                    init_method);
    memcpy(host, text, length);
    host[length] = 0;
    if (!is_of_this_machine(spelling_of(host)))
        return fail(ERR_USAGE,
                    "init_process_group: %.80s: several machines come later: give an address of "
                    "this one, as tcp://127.0.0.1:29500",
                    init_method);
    snprintf(name, bytes, "tcp://%s:%ld", spelling_of(host), strtol(colon + 1, NULL, 10));
    return OK;
}

static int name_of(const char *init_method, char *name, size_t bytes) {
    if (!strncmp(init_method, "tcp://", 6)) return name_of_address(init_method, name, bytes);
    if (!strncmp(init_method, "file:///", 8) && init_method[8] &&
        (size_t)snprintf(name, bytes, "%s", init_method) < bytes)
        return OK;
    return fail(ERR_USAGE,
                "init_process_group: init_method %.80s: give env://, tcp://127.0.0.1:PORT or "
                "file:///PATH, in less than %zu bytes",
                init_method, bytes);
}

/* env:// with the numbers given: only the address is the environment's. Launchers put the name of
 * this machine there, too, so any name will do. */
static int name_of_environment(char *name, size_t bytes) {
    const char *address = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    if (!address) address = "127.0.0.1";
    if (!port) port = "29500"; /* PyTorch's default */
    if (!*address || strlen(address) > 253 || strpbrk(address, " \t\n/"))
        return fail(ERR_USAGE,
                    "environment variable MASTER_ADDR: \"%.80s\": an address or the name of a "
                    "machine is expected",
                    address);
    if (!is_port(port))
        return fail(ERR_USAGE,
                    "environment variable MASTER_PORT: \"%.80s\": a number from 1 to 65535 is "
                    "expected",
                    port);
    snprintf(name, bytes, "tcp://%s:%ld", spelling_of(address), strtol(port, NULL, 10));
    return OK;
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
        CHECK(name_of_environment(name, sizeof name));
    else
        CHECK(name_of(init_method, name, sizeof name));
    return duet_group_join(out, name, rank, world_size, timeout_s);
}
