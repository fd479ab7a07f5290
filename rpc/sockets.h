/* Sockets between workers: TCP, and abstract unix sockets, which only processes of this user on
 * this machine may use; the kernel confirms the user. All are closed on exec. */
#ifndef RPC_SOCKETS_H
#define RPC_SOCKETS_H

#include <stddef.h>
#include <stdint.h>

/* With beyond 1 it uses TCP, at "HOST:PORT" or "[HOST]:PORT", port 0 for any; otherwise `address`
 * is the name of an abstract socket. The listener does not block. */
int socket_listen(int *fd, int beyond, const char *address);
int socket_dial(int *fd, int beyond, const char *address); /* ERR_PEER: no listener */
/* The next connection; or -1 with errno: none waits, or no descriptor is free. */
int socket_accept(int listener, int beyond);
/* Reads until all bytes have arrived. deadline 0: none. ERR_PEER: the stream has ended, or is late;
 * the message is for an opening. */
int socket_read(int fd, void *out, size_t bytes, int64_t deadline);
/* The "HOST:PORT" of this end; with any_port 1 the port is 0. */
int socket_address(int fd, int any_port, char *address, size_t bytes);

#endif
