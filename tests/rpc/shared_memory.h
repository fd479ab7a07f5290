/* What a process shares with others, as the kernel tells it. */
#ifndef TESTS_RPC_SHARED_MEMORY_H
#define TESTS_RPC_SHARED_MEMORY_H

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Of this process: the descriptors of regions. */
static inline int regions_here(void) {
    char path[300], target[64];
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    for (const struct dirent *e; (e = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
        ssize_t n = readlink(path, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        count += !strncmp(target, "/memfd:duet-rpc", 15);
    }
    closedir(folder);
    return count;
}

/* Mappings of them, its own and of others. */
static inline int mappings_here(void) {
    char line[512];
    int count = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, f))
        count += strstr(line, "memfd:duet-rpc") != NULL;
    fclose(f);
    return count;
}

#endif
