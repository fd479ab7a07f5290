/* Sockets between workers: TCP, and abstract unix sockets, which only processes of this user on
 * this machine may use, as the kernel confirms. All are closed on exec. */
#ifndef RPC_SOCKETS_H
#define RPC_SOCKETS_H

#include <stddef.h>
#include <stdint.h>

/* beyond 1: TCP, at "HOST:PORT" or "[HOST]:PORT", port 0 for any; else the name of an abstract
 * socket. The listener does not block. */
int socket_listen(int *fd, int beyond, const char *address);
int socket_dial(int *fd, int beyond, const char *address); /* ERR_PEER: nobody listens there */
/* The next connection; -1, with errno: none, or no descriptor is free. */
int socket_accept(int listener, int beyond);
/* Reads until all bytes have come. deadline 0: none. ERR_PEER: the stream has ended, or it is late;
 * the text is that of an opening. */
int socket_read(int fd, void *out, size_t bytes, int64_t deadline);
/* "HOST:PORT" of its own end. any_port 1: with port 0. */
int socket_place(int fd, int any_port, char *place, size_t bytes);

#endif
