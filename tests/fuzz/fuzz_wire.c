/* comm/wire: packets as read from the socket between a rank and the launcher. The first byte is the
 * number of descriptors sent with the packet, and the rest is the packet. */
#include <sys/socket.h>

#include "comm/wire.h"
#include "tests/fuzz/fuzz.h"

enum { DESCRIPTORS = 3 };

static void send_packet(int socket, const uint8_t *data, size_t size, int descriptors) {
    struct iovec part = {(void *)data, size};
    union {
        char bytes[CMSG_SPACE(sizeof(int) * DESCRIPTORS)];
        struct cmsghdr align;
    } control;
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (descriptors) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)descriptors);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)descriptors);
        for (int i = 0; i < descriptors; i++)
            memcpy(CMSG_DATA(rights) + (size_t)i * sizeof(int), &socket, sizeof socket);
    }
    MUST(sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char blob[WIRE_MOST_BYTES];
    int pair[2], fd = -2;
    struct wire_header header;
    if (size < 2 || size > WIRE_MOST_BYTES) return 0;
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    int descriptors = data[0] % (DESCRIPTORS + 1);
    size_t bytes = size - 1;
    send_packet(pair[0], data + 1, bytes, descriptors);
    int next = dup(pair[0]); /* the lowest free descriptor: shows what wire_receive leaves open */
    close(next);
    enum wire_result result = wire_receive(pair[1], &header, blob, &fd);
    MUST(result == WIRE_DONE || result == WIRE_BROKEN);
    if (result == WIRE_DONE) {
        MUST(header.magic == WIRE_MAGIC && header.bytes == bytes - sizeof header);
        MUST(header.bytes == 0 || !memcmp(blob, data + 1 + sizeof header, header.bytes));
        MUST((fd >= 0) == (header.has_fd == 1));
    } else {
        MUST(fd == -1);
    }
    if (fd >= 0) close(fd);
    int after = dup(pair[0]);
    MUST(after == next);
    close(after);
    close(pair[0]);
    close(pair[1]);
    return 0;
}
