/* Packets between a rank and the launcher. Each has a header, a blob, and perhaps one file
 * descriptor. The socket belongs to a SOCK_SEQPACKET pair, so a packet arrives whole or not at all,
 * and a closed end reads as an empty packet. */
#ifndef COMM_WIRE_H
#define COMM_WIRE_H

#include "comm/comm.h"

enum { WIRE_MAGIC = 0x54455544, WIRE_MOST_BYTES = 512 };

struct wire_header {
    uint32_t magic;    /* WIRE_MAGIC */
    uint32_t exchange; /* number of the exchange, from 1 */
    uint32_t rank;     /* whose blob this is */
    uint32_t bytes;    /* size of the blob */
    uint32_t has_fd;   /* 1: the packet carries a descriptor; else 0 */
};

/* Neither call blocks. */
enum wire_result {
    WIRE_DONE,
    WIRE_LATER,   /* the socket is full, or empty: poll it */
    WIRE_CROWDED, /* too many descriptors or packets are in flight: try again in a millisecond */
    WIRE_CLOSED,  /* the other end is closed */
    WIRE_BROKEN,  /* errno says why */
};

/* Sends header->bytes of `blob`. fd is -1 for none; the caller keeps it. */
enum wire_result wire_send(int socket, const struct wire_header *header, const void *blob, int fd);

/* blob: WIRE_MOST_BYTES of memory. *fd: the caller's to close, close-on-exec; -1 if none came.
 * WIRE_BROKEN with EMFILE: this process cannot open another descriptor. */
enum wire_result wire_receive(int socket, struct wire_header *header, void *blob, int *fd);

/* The process at the other end of a unix socket. 1: it is of this user. A descriptor that becomes
 * readable when it ends, close-on-exec; -1: the kernel has none. */
int socket_of_this_user(int socket);
int socket_pidfd(int socket);

#endif
