/* Where connections come from: NNG listens and dials, over abstract sockets, TCP or TLS.
 *
 * The door is open as short as can be. A worker listens until as many peers have proved themselves
 * as there are; connections of others that have ended make room for the next. Over an abstract
 * socket the kernel tells the peer's user, and another's is turned away unheard. With tls+tcp both
 * sides show a certificate, which must be signed by one in the job's own file. */
#include "rpc/transport_nng.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"

static int is_abstract(const struct carrier *c) {
    return !strcmp(c->options.scheme, "abstract");
}

/* ---- links ---- */

static int of_this_user(nng_stream *stream) {
    uint64_t uid = 0;
    return !nng_stream_get_uint64(stream, NNG_OPT_IPC_PEER_UID, &uid) && uid == geteuid();
}

static int begin_link(struct carrier *c, nng_stream *stream, enum proof_role role) {
    if (!is_abstract(c) || of_this_user(stream)) return link_new(c, stream, role);
    nng_stream_free(stream);
    return fail(ERR_FAILED, "rpc: another user's process is at the other end");
}

static void on_accept(void *argument) {
    struct carrier *c = argument;
    int error = nng_aio_result(c->accept);
    if (error == NNG_ECLOSED || error == NNG_ECANCELED) return;
    if (!error && begin_link(c, nng_aio_get_output(c->accept, 0), ROLE_LISTENS))
        c->events.on_refused(c->events.context, 0);
    nng_stream_listener_accept(c->listener, c->accept);
}

/* ---- TLS ---- */

static int tls_config(struct carrier *c, nng_tls_config **out, nng_tls_mode mode) {
    const char *file = c->options.tls_file;
    int error = nng_tls_config_alloc(out, mode);
    if (!error) error = nng_tls_config_auth_mode(*out, NNG_TLS_AUTH_MODE_REQUIRED);
    if (!error) error = nng_tls_config_cert_key_file(*out, file, NULL);
    if (!error) error = nng_tls_config_ca_file(*out, file);
    /* Certificates are the job's, whatever machine they lie on. */
    if (!error && mode == NNG_TLS_MODE_CLIENT) error = nng_tls_config_server_name(*out, "duet-rpc");
    if (!error) return OK;
    return fail(ERR_USAGE,
                "rpc: tls+tcp: %s: %s: give a PEM file with a certificate for duet-rpc and its key",
                file, nng_strerror(error));
}

static int open_tls(struct carrier *c) {
    if (strcmp(c->options.scheme, "tls+tcp") != 0) return OK;
    if (!strcmp(nng_tls_engine_name(), "none"))
        return fail(ERR_FAILED, "rpc: tls+tcp: this NNG was built without TLS");
    if (!c->options.tls_file)
        return fail(ERR_USAGE, "rpc: tls+tcp: no certificate was given: set DUET_RPC_TLS_FILE, or "
                               "tls_file of the options");
    CHECK(tls_config(c, &c->tls_client, NNG_TLS_MODE_CLIENT));
    return tls_config(c, &c->tls_server, NNG_TLS_MODE_SERVER);
}

/* ---- listening and dialling ---- */

/* "HOST:PORT" of an address of a stream or a listener. */
static void write_place(char *out, size_t bytes, const nng_sockaddr *a, int port) {
    char host[INET6_ADDRSTRLEN] = "";
    int six = a->s_family == NNG_AF_INET6;
    inet_ntop(six ? AF_INET6 : AF_INET,
              six ? (const void *)a->s_in6.sa_addr : (const void *)&a->s_in.sa_addr, host,
              sizeof host);
    snprintf(out, bytes, six ? "[%s]:%d" : "%s:%d", host, port);
}

static int carrier_listen(struct carrier *c, const char *address) {
    int error = nng_stream_listener_alloc(&c->listener, address), port = 0;
    if (!error && c->tls_server)
        error = nng_stream_listener_set_ptr(c->listener, NNG_OPT_TLS_CONFIG, c->tls_server);
    if (!error) error = nng_stream_listener_listen(c->listener);
    if (!error) error = nng_aio_alloc(&c->accept, on_accept, c);
    if (error)
        return fail(ERR_FAILED,
                    "rpc: listen at %s: %s: is another job of yours running with this "
                    "MASTER_PORT?",
                    address, nng_strerror(error));
    if (!is_abstract(c)) {
        const char *host = strstr(address, "://") + 3, *end = strrchr(host, ':');
        nng_stream_listener_get_int(c->listener, NNG_OPT_TCP_BOUND_PORT, &port);
        snprintf(c->own.place, sizeof c->own.place, "%.*s:%d", (int)(end - host), host, port);
    }
    nng_aio_set_timeout(c->accept, NNG_DURATION_INFINITE);
    nng_stream_listener_accept(c->listener, c->accept);
    return OK;
}

/* At the address of this machine from which the stream has been dialled. */
static int listen_beside(struct carrier *c, nng_stream *stream) {
    nng_sockaddr own;
    char place[PLACE_BYTES], address[PLACE_BYTES + 16];
    int error = nng_stream_get_addr(stream, NNG_OPT_LOCADDR, &own);
    if (error) return fail(ERR_FAILED, "rpc: own address: %s", nng_strerror(error));
    write_place(place, sizeof place, &own, 0);
    snprintf(address, sizeof address, "%s://%s", c->options.scheme, place);
    return carrier_listen(c, address);
}

static int carrier_dial(struct carrier *c, const char *address, int listen_too) {
    nng_stream_dialer *dialer = NULL;
    nng_aio *aio = NULL;
    int error = nng_stream_dialer_alloc(&dialer, address);
    if (!error && c->tls_client)
        error = nng_stream_dialer_set_ptr(dialer, NNG_OPT_TLS_CONFIG, c->tls_client);
    if (!error) error = nng_aio_alloc(&aio, NULL, NULL);
    if (!error) {
        nng_aio_set_timeout(aio, 2000);
        nng_stream_dialer_dial(dialer, aio);
        nng_aio_wait(aio);
        error = nng_aio_result(aio);
    }
    nng_stream *stream = error ? NULL : nng_aio_get_output(aio, 0);
    if (aio) nng_aio_free(aio);
    if (dialer) nng_stream_dialer_free(dialer);
    if (error) return fail(ERR_PEER, "rpc: %s: %s", address, nng_strerror(error));
    int code = listen_too && !c->listener ? listen_beside(c, stream) : OK;
    if (!code) return begin_link(c, stream, ROLE_DIALS);
    nng_stream_free(stream);
    return code;
}

/* ---- beginning and end ---- */

static int carrier_open(struct carrier **out, const struct transport_events *events,
                        const struct hello *own, const struct transport_options *options) {
    struct carrier *c = *out = calloc(1, sizeof *c);
    if (!c) return fail(ERR_MEMORY, "rpc: no host memory");
    c->events = *events;
    c->options = *options;
    c->own = *own;
    pthread_mutex_init(&c->lock, NULL);
    regions_open(&c->regions);
    if (is_abstract(c)) regions_introduce(&c->regions, &c->own);
    return open_tls(c);
}

static int is_busy(struct carrier *c) {
    int busy = regions_under_way(&c->regions);
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < c->count; i++)
        busy |= link_is_busy(c->links[i]);
    pthread_mutex_unlock(&c->lock);
    return busy;
}

static void carrier_flush(struct carrier *c, int timeout_ms) {
    int64_t deadline = deadline_after(timeout_ms * 1e-3);
    while (is_busy(c) && now_ns() < deadline)
        usleep(200);
}

static void carrier_close(struct carrier *c) {
    if (!c) return;
    pthread_mutex_lock(&c->lock);
    c->closing = 1;
    pthread_mutex_unlock(&c->lock);
    if (c->listener) nng_stream_listener_close(c->listener);
    if (c->accept) nng_aio_stop(c->accept);
    if (c->accept) nng_aio_free(c->accept);
    for (int i = 0; i < c->count; i++)
        link_hush(c->links[i]);
    for (int i = 0; i < c->count; i++)
        link_free(c->links[i]);
    if (c->listener) nng_stream_listener_free(c->listener); /* the last peer's link closes it */
    if (c->tls_client) nng_tls_config_free(c->tls_client);
    if (c->tls_server) nng_tls_config_free(c->tls_server);
    regions_close(&c->regions);
    pthread_mutex_destroy(&c->lock);
    free(c);
}

const struct transport *transport_of_build(void) {
    static const struct transport nng = {.name = "nng",
                                         .name_of = proof_name,
                                         .open = carrier_open,
                                         .listen = carrier_listen,
                                         .dial = carrier_dial,
                                         .room = link_room,
                                         .send = link_send,
                                         .look = link_look,
                                         .flush = carrier_flush,
                                         .close = carrier_close};
    return &nng;
}
