/* comm/wire, the sending half: a sequence of packets and readings on one socket pair, as its bytes
 * say, while the kernel refuses sends as the bytes say too. Whatever comes is in the order of what
 * was sent, whole, and with a descriptor exactly where one was sent; a send that was put off or
 * refused has sent nothing; and no descriptor is left open.
 *
 * The library is linked with --wrap=sendmsg, so that its sends come through here. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "comm/wire.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_WAITING = 64 };

enum { SHORT = -1 }; /* a part of the packet is sent: no packet socket does that */

/* What the kernel may answer; 0: it sends. */
static const int refusals[] = {0,          0,     0,     EAGAIN, EINTR, ETOOMANYREFS,
                               ECONNRESET, EPIPE, EPERM, ENOMEM, SHORT, ENOBUFS};
enum { REFUSALS = sizeof refusals / sizeof *refusals };

static int refusal; /* of the next send */

ssize_t __real_sendmsg(int socket, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int socket, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int socket, const struct msghdr *message, int flags) {
    MUST(flags & MSG_NOSIGNAL && flags & MSG_DONTWAIT);
    if (!refusal) return __real_sendmsg(socket, message, flags);
    errno = refusal;
    return refusal == SHORT ? 1 : -1;
}

static enum wire_result expected(int error) {
    switch (error) {
    case EAGAIN:
    case EINTR: return WIRE_LATER;
    case ENOBUFS:
    case ETOOMANYREFS: return WIRE_CROWDED;
    case EPIPE:
    case ECONNRESET: return WIRE_CLOSED;
    default: return WIRE_BROKEN;
    }
}

struct sent {
    uint32_t bytes;
    int fd; /* 1: one was sent with it */
};

struct queue {
    struct sent of[MOST_WAITING];
    unsigned first, count;
    uint32_t number; /* of packets sent: the exchange in the header of the next */
};

static int lowest_free(void) {
    int fd = fcntl(0, F_DUPFD_CLOEXEC, 0);
    if (fd >= 0) close(fd);
    return fd;
}

static void fill(char *blob, uint32_t bytes, uint32_t number) {
    for (uint32_t i = 0; i < bytes; i++)
        blob[i] = (char)(i * 31 + number);
}

/* Returns 1 if the packet is under way. */
static int send_one(struct queue *q, int socket, uint32_t bytes, int with_fd, int refused) {
    static char blob[COMM_BLOB_BYTES];
    struct wire_header header = {WIRE_MAGIC, q->number, 0, bytes, (uint32_t)with_fd};
    fill(blob, bytes, q->number);
    refusal = refused;
    enum wire_result result = wire_send(socket, &header, blob, with_fd ? socket : -1);
    refusal = 0;
    if (refused) {
        MUST(result == expected(refused) &&
             (result != WIRE_BROKEN || errno == (refused == SHORT ? EMSGSIZE : refused)));
        return 0;
    }
    MUST(result == WIRE_DONE || result == WIRE_LATER || result == WIRE_CROWDED);
    if (result != WIRE_DONE) return 0; /* the socket is full */
    q->of[(q->first + q->count++) % MOST_WAITING] = (struct sent){bytes, with_fd};
    q->number++;
    return 1;
}

static void receive_one(struct queue *q, int socket) {
    static char blob[COMM_BLOB_BYTES], want[COMM_BLOB_BYTES];
    struct wire_header header;
    int fd = -2;
    enum wire_result result = wire_receive(socket, &header, blob, &fd);
    if (!q->count) {
        MUST(result == WIRE_LATER && fd == -1);
        return;
    }
    struct sent sent = q->of[q->first];
    uint32_t number = q->number - q->count;
    fill(want, sent.bytes, number);
    MUST(result == WIRE_DONE && header.exchange == number && header.bytes == sent.bytes);
    MUST((fd >= 0) == sent.fd && (fd < 0 || fcntl(fd, F_GETFD) == FD_CLOEXEC));
    MUST(!memcmp(blob, want, sent.bytes));
    if (fd >= 0) close(fd);
    q->first = (q->first + 1) % MOST_WAITING;
    q->count--;
}

/* Each three bytes are one deed: what and how it is refused; the packet's size. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct queue q = {.number = 1};
    int pair[2], before = lowest_free();
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    for (size_t i = 0; i + 3 <= size && i < 3 * 200; i += 3) {
        uint32_t bytes = (uint32_t)(data[i + 1] << 8 | data[i + 2]);
        if (data[i] & 1 || q.count == MOST_WAITING)
            receive_one(&q, pair[1]);
        else
            send_one(&q, pair[0], bytes, data[i] >> 1 & 1, refusals[(data[i] >> 2) % REFUSALS]);
    }
    while (q.count)
        receive_one(&q, pair[1]);
    close(pair[1]);
    struct wire_header header = {WIRE_MAGIC, q.number, 0, 0, 0};
    MUST(wire_send(pair[0], &header, NULL, -1) == WIRE_CLOSED); /* and no SIGPIPE */
    close(pair[0]);
    MUST(lowest_free() == before);
    return 0;
}
