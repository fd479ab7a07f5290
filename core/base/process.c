/* Reads facts about processes from /proc: see process.h. */
#include "base/process.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* The parent is behind the name of the program, which may hold anything. 0: none is known. */
static pid_t parent_of(pid_t pid) {
    char path[40], line[512];
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    const char *name_end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (name_end && sscanf(name_end, ") %*c %d", &parent) != 1) parent = 0;
    fclose(file);
    return parent;
}

int process_children(pid_t *children, int most) {
    int count = 0;
    DIR *all = opendir("/proc");
    for (struct dirent *entry; all && count < most && (entry = readdir(all));) {
        pid_t pid = atoi(entry->d_name);
        if (pid > 0 && parent_of(pid) == getpid()) children[count++] = pid;
    }
    if (all) closedir(all);
    return count;
}

int process_has_mapped(const char *const *names) {
    char line[512];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && !found && fgets(line, sizeof line, maps))
        for (int i = 0; names[i] && !found; i++)
            found = strstr(line, names[i]) != NULL;
    if (maps) fclose(maps);
    return found;
}
