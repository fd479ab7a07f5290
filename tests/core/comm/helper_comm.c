/* A rank as a separate program, started with fork and exec. It joins the job, writes one line about
 * what it inherited and whether anything in the job has a name, and leaves.
 *
 * Usage: helper_comm WORD N, where N is the descriptor for the line. test_comm.c starts it. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/comm.h"

/* Sockets that this process holds. There should be none. */
static int count_sockets(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        struct stat status;
        int fd = atoi(entry->d_name);
        count += fd > 2 && !fstat(fd, &status) && S_ISSOCK(status.st_mode);
    }
    if (folder) closedir(folder);
    return count;
}

static int maps_mention(const char *text) {
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        found |= strstr(line, text) != NULL;
    if (maps) fclose(maps);
    return found;
}

/* How many of the signals that the launcher blocks for itself this process blocks too. */
static int count_blocked(void) {
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    return sigismember(&mask, SIGINT) + sigismember(&mask, SIGTERM) + sigismember(&mask, SIGHUP);
}

int main(int argc, char **argv) {
    struct comm *comm;
    if (argc != 3) return 2;
    int death_signal = 0, code = comm_open(&comm, NULL);
    if (code) {
        fprintf(stderr, "duet: %s\n", error_message());
        return error_exit_status(code);
    }
    prctl(PR_GET_PDEATHSIG, &death_signal);
    dprintf(atoi(argv[2]),
            "%s %s/%s %s/%s %s %s omp %s sockets %d memfd %d shm %d death %d blocked %d\n", argv[1],
            getenv("RANK"), getenv("WORLD_SIZE"), getenv("LOCAL_RANK"), getenv("LOCAL_WORLD_SIZE"),
            getenv("MASTER_ADDR"), getenv("MASTER_PORT"), getenv("OMP_NUM_THREADS"),
            count_sockets(), maps_mention("memfd:duet-job"), maps_mention("/dev/shm/"),
            death_signal, count_blocked());
    code = comm_barrier(comm, "all have written");
    comm_close(comm);
    return error_exit_status(code);
}
