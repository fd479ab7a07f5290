/* Asks the kernel about other processes of this machine. */
#ifndef COMM_PEERS_H
#define COMM_PEERS_H

#include <sys/types.h>

/* The process at the other end of a unix socket; 0: it belongs to another user, or is unknown. */
pid_t process_of_socket(int socket);

/* 1: the process has ended. 0: it still runs, or the kernel does not say. */
int process_has_ended(pid_t pid);

/* Opens the memory behind descriptor `theirs` of a process of this user, which keeps it open
 * meanwhile. Returns a descriptor, close-on-exec; -1 with errno. */
int descriptor_of(pid_t pid, int theirs);

#endif
