/* See peers.h. */
#include "comm/peers.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

pid_t process_of_socket(int socket) {
    struct ucred peer = {.pid = 0};
    socklen_t size = sizeof peer;
    getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size);
    return peer.uid == geteuid() ? peer.pid : 0;
}

/* A process that has ended stays until its parent takes its status; its pidfd is then readable. */
int process_has_ended(pid_t pid) {
    struct pollfd polled = {.fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN};
    if (polled.fd < 0) return errno == ESRCH;
    int ended = poll(&polled, 1, 0) > 0;
    close(polled.fd);
    return ended;
}

int descriptor_of(pid_t pid, int theirs) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, theirs);
    return open(path, O_RDWR | O_CLOEXEC);
}
