/* Processes by what /proc says about them: see process.h. */
#include "base/process.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

/* The state letter in a file /proc/.../stat, 0 if it cannot be read. */
static char read_state(const char *path) {
    char state = 0;
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 0;
    fclose(file);
    return state;
}

int process_is_traced(pid_t pid) {
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    return read_state(path) == 't';
}

int process_is_dead(pid_t pid) {
    char folder[40], path[80];
    int threads = 0, dead = 0;
    snprintf(folder, sizeof folder, "/proc/%d/task", (int)pid);
    DIR *tasks = opendir(folder);
    for (struct dirent *entry; tasks && (entry = readdir(tasks));) {
        int thread = atoi(entry->d_name);
        if (!thread) continue;
        snprintf(path, sizeof path, "%s/%d/stat", folder, thread);
        char state = read_state(path);
        threads++;
        dead += state == 'Z' || state == 'X' || !state; /* no file any more: it has gone */
    }
    if (tasks) closedir(tasks);
    return threads > 0 && dead == threads;
}
