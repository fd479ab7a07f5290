/* One packet over a unix socket, with a file descriptor as ancillary data (SCM_RIGHTS). */
#include "comm/wire.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Space for one descriptor, aligned as the kernel requires. */
union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
};

static enum wire_result result_of_errno(void) {
    switch (errno) {
    case EAGAIN:
    case EINTR: return WIRE_LATER;
    case ENOBUFS: /* the kernel is short of memory for packets */
    case ETOOMANYREFS:
        return WIRE_CROWDED; /* a user may have RLIMIT_NOFILE descriptors in flight */
    case EPIPE:
    case ECONNRESET: return WIRE_CLOSED;
    default: return WIRE_BROKEN;
    }
}

enum wire_result wire_send(int socket, const struct wire_header *header, const void *blob, int fd) {
    struct iovec parts[2] = {{(void *)header, sizeof *header}, {(void *)blob, header->bytes}};
    union control control;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    ssize_t sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) return result_of_errno();
    if ((size_t)sent == sizeof *header + header->bytes) return WIRE_DONE;
    errno = EMSGSIZE; /* a socket of another kind, which sends parts of packets */
    return WIRE_BROKEN;
}

enum wire_result wire_receive(int socket, struct wire_header *header, void *blob, int *fd) {
    struct iovec parts[2] = {{header, sizeof *header}, {blob, WIRE_MOST_BYTES}};
    union control control;
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = 2,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    *fd = -1;
    ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0) return result_of_errno();
    if (got == 0) return WIRE_CLOSED;
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (rights && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(rights), sizeof *fd);
    if ((size_t)got >= sizeof *header && header->magic == WIRE_MAGIC &&
        (size_t)got == sizeof *header + header->bytes && (*fd >= 0) == (header->has_fd == 1))
        return WIRE_DONE;
    errno = message.msg_flags & MSG_CTRUNC ? EMFILE : EPROTO;
    if (*fd >= 0) close(*fd);
    *fd = -1;
    return WIRE_BROKEN;
}

/* One that cannot be told has the process number 0, which nobody has. */
static struct ucred peer_of(int socket) {
    struct ucred peer = {.pid = 0};
    socklen_t size = sizeof peer;
    getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    return peer;
}

int socket_of_this_user(int socket) {
    const struct ucred peer = peer_of(socket);
    return peer.pid && peer.uid == geteuid();
}

int socket_pidfd(int socket) {
    return (int)syscall(SYS_pidfd_open, peer_of(socket).pid, 0);
}
