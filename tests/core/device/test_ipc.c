/* device/: memory of another process. The descriptor travels over a unix socket.
 * The child is forked before any device exists. */
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/core/device/shared.h"

struct parcel {
    struct memory_handle handle;
    int count;
};

static void send_parcel(int socket, const struct parcel *parcel, int fd) {
    struct iovec data = {(void *)parcel, sizeof *parcel};
    char control[CMSG_SPACE(sizeof fd)] = {0};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(c), &fd, sizeof fd);
    cr_assert_eq(sendmsg(socket, &message, 0), (ssize_t)sizeof *parcel);
}

static int receive_parcel(int socket, struct parcel *parcel, int *fd) {
    struct iovec data = {parcel, sizeof *parcel};
    char control[CMSG_SPACE(sizeof *fd)] = {0};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof control};
    if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *parcel) return 0;
    memcpy(fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof *fd);
    return 1;
}

/* The other rank: doubles the numbers in each exported range. Returns its exit status. */
static int other_rank(int socket) {
    struct device_config config = test_config(DEVICE_HOST, 1);
    struct device *d;
    struct parcel parcel;
    int fd, status = 0;
    if (device_open(&d, &config)) return 10;
    for (int i = 0; i < 2 && !status; i++) {
        void *memory;
        if (!receive_parcel(socket, &parcel, &fd)) return 11;
        if (device_import(d, &parcel.handle, fd, &memory)) return 12;
        close(fd); /* the mapping survives */
        for (int j = 0; j < parcel.count; j++)
            ((float *)memory)[j] *= 2;
        if (parcel.handle.pid != getppid() || parcel.handle.device != 0) status = 13;
        if (i == 0) device_unimport(d, memory); /* device_close unmaps the second one */
    }
    char answer = (char)status;
    if (write(socket, &answer, 1) != 1) status = 14;
    device_close(d);
    return status;
}

Test(ipc, a_process_writes_into_anothers_device, .timeout = 30) {
    int sockets[2], status;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    pid_t child = fork();
    if (child == 0) {
        close(sockets[0]);
        _exit(other_rank(sockets[1]));
    }
    close(sockets[1]);
    struct device *d = test_open(DEVICE_HOST, 0);
    float *first = test_floats(d, 100), *second = test_floats(d, 5000),
          *third = test_floats(d, 100);
    for (int i = 0; i < 100; i++)
        first[i] = third[i] = 1;
    for (int i = 0; i < 5000; i++)
        second[i] = (float)i;
    struct parcel parcel = {.count = 5000};
    int fd;
    MUST(device_export(d, second, &parcel.handle, &fd));
    cr_assert_geq(parcel.handle.size, 20000);
    cr_assert_neq(parcel.handle.offset % 4096, 0,
                  "the case of a range inside a page is wanted here");
    send_parcel(sockets[0], &parcel, fd);
    /* from the middle of the allocation to its end */
    MUST(device_export(d, second + 1000, &parcel.handle, &fd));
    parcel.count = 4000;
    cr_assert_lt(parcel.handle.size, 4000 * 4 + 256);
    send_parcel(sockets[0], &parcel, fd);
    char answer = 99;
    cr_assert_eq(read(sockets[0], &answer, 1), 1);
    cr_assert_eq(answer, 0);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", status);
    for (int i = 0; i < 5000; i++)
        cr_assert_eq(second[i], (float)i * (i < 1000 ? 2 : 4), "element %d", i);
    for (int i = 0; i < 100; i++)
        cr_assert(first[i] == 1 && third[i] == 1);
    close(sockets[0]);
    device_close(d);
}

Test(ipc, ones_own_memory_may_be_imported_too, .timeout = 30) {
    struct device *a = test_open(DEVICE_HOST, 0), *b = test_open(DEVICE_HOST_LATE, 1);
    float *x = test_floats(a, 10);
    struct memory_handle handle;
    void *seen, *again;
    int fd;
    MUST(device_export(a, x, &handle, &fd));
    MUST(device_import(b, &handle, fd, &seen));
    MUST(device_import(b, &handle, fd, &again));
    ((float *)seen)[9] = 5;
    cr_assert_eq(x[9], 5);
    cr_assert_neq(seen, (void *)x);
    device_unimport(b, seen);
    cr_assert_eq(((float *)again)[9], 5);
    device_unimport(b, NULL);
    device_close(b);
    cr_assert_eq(x[9], 5);
    device_close(a);
}

Test(ipc, nothing_in_a_handle_is_believed, .timeout = 30) {
    struct device *d = test_open(DEVICE_HOST, 0);
    float *x = test_floats(d, 10);
    struct memory_handle good, bad;
    void *memory;
    int fd;
    MUST(device_export(d, x, &good, &fd));
    bad = good, bad.size = 9 << 20;
    cr_assert_eq(device_import(d, &bad, fd, &memory), ERR_FAILED);
    MUST_SAY("outside of");
    bad = good, bad.offset = UINT64_MAX - 10;
    cr_assert_eq(device_import(d, &bad, fd, &memory), ERR_FAILED);
    bad = good, bad.offset = (8 << 20) - 4096, bad.size = 4097; /* by one byte */
    cr_assert_eq(device_import(d, &bad, fd, &memory), ERR_FAILED);
    bad.size = 4096;
    MUST(device_import(d, &bad, fd, &memory));
    device_unimport(d, memory);
    bad = good, bad.size = 0;
    cr_assert_eq(device_import(d, &bad, fd, &memory), ERR_FAILED);
    bad = good, bad.kind[0] ^= 1;
    cr_assert_eq(device_import(d, &bad, fd, &memory), ERR_FAILED);
    cr_assert_eq(device_import(d, &good, -1, &memory), ERR_FAILED);
    cr_assert_null(memory);
    int outside;
    cr_assert_eq(device_export(d, &outside, &bad, &fd), ERR_FAILED);
    cr_assert_eq(fd, -1);
    device_free(d, x);
    cr_assert_eq(device_export(d, x, &bad, &fd), ERR_FAILED, "freed memory");
    device_close(d);
}

Test(ipc, the_receiver_cannot_cut_the_memory_off, .timeout = 30) {
    struct device *d = test_open(DEVICE_HOST, 0);
    struct memory_handle handle;
    int fd;
    MUST(device_export(d, test_floats(d, 10), &handle, &fd));
    cr_assert_eq(ftruncate(fd, 4096), -1);
    cr_assert_eq(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC,
                 "a program started by a rank would inherit the device");
    device_close(d);
}
