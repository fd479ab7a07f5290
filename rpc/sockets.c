/* Opens, dials and accepts abstract unix sockets and TCP: see sockets.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/peers.h"
#include "rpc/sockets.h"

enum { DIAL_MS = 2000 };

struct address {
    struct sockaddr_storage at;
    socklen_t length;
};

static int abstract_address(struct address *a, const char *name) {
    struct sockaddr_un *at = (struct sockaddr_un *)&a->at;
    size_t length = strlen(name);
    *a = (struct address){.length =
                              (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)};
    if (length >= sizeof at->sun_path - 1)
        return fail(ERR_USAGE, "rpc: '%.100s': the name of a socket is too long", name);
    at->sun_family = AF_UNIX;
    memcpy(at->sun_path + 1, name, length);
    return OK;
}

/* "HOST:PORT" or "[HOST]:PORT". */
static int tcp_address(struct address *a, const char *text) {
    char host[256];
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const char *colon = strrchr(text, ':');
    size_t skip = *text == '[', length = colon ? (size_t)(colon - text) - 2 * skip : 0;
    if (!length || length >= sizeof host)
        return fail(ERR_USAGE, "rpc: address '%.100s': give HOST:PORT", text);
    snprintf(host, sizeof host, "%.*s", (int)length, text + skip);
    int error = getaddrinfo(host, colon + 1, &hints, &found);
    if (error) return fail(ERR_PEER, "rpc: %s: %s", text, gai_strerror(error));
    memcpy(&a->at, found->ai_addr, found->ai_addrlen);
    a->length = found->ai_addrlen;
    freeaddrinfo(found);
    return OK;
}

static int socket_open(int *fd, struct address *a, int beyond, const char *address) {
    *fd = -1;
    CHECK(beyond ? tcp_address(a, address) : abstract_address(a, address));
    *fd = socket(a->at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    return *fd < 0 ? fail_errno(ERR_FAILED, errno, "rpc: %s: socket", address) : OK;
}

static void send_at_once(int fd) {
    const int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes); /* no effect on a unix socket */
}

int socket_listen(int *fd, int beyond, const char *address) {
    struct address a;
    const int yes = 1;
    CHECK(socket_open(fd, &a, beyond, address));
    if (beyond) setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (!bind(*fd, (struct sockaddr *)&a.at, a.length) && !listen(*fd, SOMAXCONN)) return OK;
    int error = errno;
    close(*fd);
    *fd = -1;
    return fail(ERR_FAILED,
                "rpc: listen at %s: %s: is another job of yours running with this MASTER_PORT?",
                address, strerror(error));
}

int socket_dial(int *fd, int beyond, const char *address) {
    struct address a;
    int error = 0;
    socklen_t size = sizeof error;
    CHECK(socket_open(fd, &a, beyond, address));
    if (connect(*fd, (struct sockaddr *)&a.at, a.length)) error = errno;
    if (error == EINPROGRESS) {
        struct pollfd polled = {.fd = *fd, .events = POLLOUT};
        error = poll(&polled, 1, DIAL_MS) == 1 ? 0 : ETIMEDOUT;
        if (!error) getsockopt(*fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    send_at_once(*fd);
    if (!error) error = fcntl(*fd, F_SETFL, 0) ? errno : 0; /* from here on it blocks */
    if (!error && !beyond && !process_of_socket(*fd)) error = EPERM;
    if (!error) return OK;
    close(*fd);
    *fd = -1;
    return fail_errno(ERR_PEER, error, "rpc: %s", address);
}

int socket_accept(int listener, int beyond) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0) return -1;
    send_at_once(fd);
    if (beyond || process_of_socket(fd)) return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

int socket_read(int fd, void *out, size_t bytes, int64_t deadline) {
    for (size_t got = 0; got < bytes;) {
        struct pollfd polled = {.fd = fd, .events = POLLIN};
        int64_t left = deadline ? (deadline - now_ns()) / 1000000 : 1;
        if (left <= 0) return fail(ERR_PEER, "rpc: a connection took too long before its hello");
        if (deadline && poll(&polled, 1, (int)left) <= 0) continue;
        ssize_t n = recv(fd, (char *)out + got, bytes - got, deadline ? MSG_DONTWAIT : MSG_WAITALL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (n <= 0) return fail(ERR_PEER, "rpc: a connection has ended before its hello");
        got += (size_t)n;
    }
    return OK;
}

int socket_address(int fd, int any_port, char *address, size_t bytes) {
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    char host[INET6_ADDRSTRLEN] = "", port[8] = "";
    if (getsockname(fd, (struct sockaddr *)&own, &length) ||
        getnameinfo((struct sockaddr *)&own, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV))
        return fail(ERR_FAILED, "rpc: a socket's own address cannot be found");
    snprintf(address, bytes, own.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host,
             any_port ? "0" : port);
    return OK;
}
