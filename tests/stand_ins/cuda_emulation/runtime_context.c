/* The context of a process on a GPU, made by the first call that needs one: what it costs, who may
 * have one, and what it costs that processes take turns on a GPU.
 *
 * Processes of an emulated machine know of each other by names among the abstract sockets, which
 * the kernel takes back when a process ends, and by one word for each GPU in shared memory: the
 * process that used it last. */
#include "tests/stand_ins/cuda_emulation/emulation.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 32, MPS_QUEUES = 120 };

static void pause_us(long us) {
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    nanosleep(&time, NULL);
}

/* Takes a name of this machine. The descriptor that has it; -1: another process has it. */
static int take_name(const char *what, int number) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int length = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "emulated machine %s: %s %d",
                          emulated.machine, what, number);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1) + (socklen_t)length;
    if (fd >= 0 && !bind(fd, (const struct sockaddr *)&name, bytes)) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* 1: another process of this machine has a context. */
static int has_company(void) {
    int company = 0, own = -1;
    for (int i = 0; i < CLIENTS; i++) {
        int fd = take_name("client", i);
        if (fd < 0)
            company = 1;
        else if (own < 0)
            own = fd; /* until the end of the process */
        else
            close(fd);
    }
    return company;
}

/* Under MPS. 0: other processes have left too few. */
static int take_queues(const struct gpu *gpu) {
    char what[48];
    int missing = emulated.mps_queues;
    snprintf(what, sizeof what, "MPS queue of GPU %d", gpu->number);
    for (int i = 0; i < MPS_QUEUES && missing > 0; i++)
        missing -= take_name(what, i) >= 0; /* until the end of the process */
    return missing <= 0;
}

static void start_slowly(void) {
    if (!emulated.start_ms) return;
    pause_us((has_company() ? 1 : 2) * emulated.start_ms * 1000);
}

static atomic_int *last_users(void) {
    char name[64];
    snprintf(name, sizeof name, "/emulated-machine-%s", emulated.machine);
    int fd = shm_open(name, O_RDWR | O_CREAT, 0600);
    void *memory = fd < 0 || ftruncate(fd, 4096)
                       ? MAP_FAILED
                       : mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

void context_switch(const struct gpu *gpu) {
    static atomic_int *_Atomic users;
    if (!emulated.switch_us || !*emulated.machine) return;
    if (!users) users = last_users();
    if (users && atomic_exchange(&users[gpu->number], (int)getpid()) != (int)getpid())
        pause_us(emulated.switch_us);
}

cudaError_t context_open(struct gpu *gpu) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static int started;
    cudaError_t error = cudaSuccess;
    if (gpu->context) return cudaSuccess;
    pthread_mutex_lock(&lock);
    if (!started) start_slowly();
    started = 1;
    if (!gpu->context && emulated.exclusive && take_name("context on GPU", gpu->number) < 0)
        error = cudaErrorDevicesUnavailable;
    if (!gpu->context && error == cudaSuccess && !take_queues(gpu))
        error = cudaErrorMpsMaxConnectionsReached;
    if (error == cudaSuccess) gpu->context = 1;
    pthread_mutex_unlock(&lock);
    return error;
}
