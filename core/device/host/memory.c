/* The default memory of an emulated device: a share of the machine's available memory, within the
 * limits of this process's cgroups. /proc/meminfo does not show a container's limit; the kernel's
 * out-of-memory killer would end a process that ignored it, without an error message. Without
 * /proc, sysconf(3) says how much is free.
 *
 * Sources: proc(5) for MemAvailable; the kernel's admin-guide/cgroup-v2 for memory.max,
 * memory.current and memory.stat. Version 1 of cgroups is not read. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/host/host.h"

/* the default is never larger; --device-memory may ask for more */
static const uint64_t DEFAULT_CAP = 16ull << 30;
static const uint64_t SMALLEST = 2ull << 20; /* one step of sizes */

/* *value is the number after `key` on the first line that starts with it. Returns 0 if there is no
 * such file, line or number. */
static int read_keyed(const char *path, const char *key, uint64_t *value) {
    FILE *file = fopen(path, "r");
    char line[256];
    int found = 0;
    if (!file) return 0;
    while (!found && fgets(line, sizeof line, file))
        if (!strncmp(line, key, strlen(key)))
            found = sscanf(line + strlen(key), "%" SCNu64, value) == 1;
    fclose(file);
    return found;
}

/* The bytes that one cgroup still allows: its limit minus the memory in use, not counting file
 * cache that the kernel would drop first. UINT64_MAX: no limit. */
static uint64_t headroom(const char *folder) {
    char path[PATH_MAX + 64];
    uint64_t limit, used, cache = 0;
    snprintf(path, sizeof path, "%s/memory.max", folder);
    if (!read_keyed(path, "", &limit)) return UINT64_MAX; /* missing, or "max" */
    snprintf(path, sizeof path, "%s/memory.current", folder);
    if (!read_keyed(path, "", &used)) return UINT64_MAX;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    read_keyed(path, "inactive_file ", &cache);
    used = used > cache ? used - cache : 0;
    return limit > used ? limit - used : 0;
}

/* The least headroom of all cgroups from the process's own up to the mount. In a container the
 * path is often not visible; the mount itself is then the container's cgroup. */
static uint64_t walk_up(const char *mount, const char *cgroup) {
    char folder[PATH_MAX];
    uint64_t least = UINT64_MAX;
    int n = snprintf(folder, sizeof folder, "%s%s", mount, cgroup);
    if (n < 0 || (size_t)n >= sizeof folder) return least;
    for (;;) {
        uint64_t here = headroom(folder);
        if (here < least) least = here;
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= strlen(mount) || !slash) return least;
        *slash = 0;
    }
}

/* The process's own cgroup is the line "0::/path" of /proc/self/cgroup. */
static uint64_t cgroup_headroom(const char *root) {
    char path[256], mount[256], line[PATH_MAX];
    uint64_t least = UINT64_MAX;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    if (!file) return least;
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "0::", 3)) least = walk_up(mount, line + 3);
    }
    fclose(file);
    return least;
}

/* If /proc is not mounted: the free memory. It excludes the file cache, so it is less. */
static uint64_t memory_free(void) {
    long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

uint64_t host_memory_available(const char *root) {
    char path[256];
    uint64_t kib, available;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    available = read_keyed(path, "MemAvailable:", &kib) ? kib * 1024 : memory_free();
    uint64_t allowed = cgroup_headroom(root);
    return allowed < available ? allowed : available;
}

uint64_t device_default_memory(int devices) {
    uint64_t most = host_memory_available("") / 10 * 8;
    if (most > DEFAULT_CAP) most = DEFAULT_CAP;
    most /= (uint64_t)(devices > 0 ? devices : 1);
    most -= most % SMALLEST;
    return most > SMALLEST ? most : SMALLEST;
}
