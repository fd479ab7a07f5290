/* Reads facts about processes from /proc; see process.h. */
#include "base/process.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The parent comes after the program's name, which may contain anything. 0: unknown. */
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
