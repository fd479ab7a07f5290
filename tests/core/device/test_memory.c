/* Memory in device/. The arena gives each byte to one owner and gets every byte back, the ledger
 * knows the cause of each byte, and errors say what is missing. */
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/host/host.h"
#include "tests/core/device/shared.h"

Test(memory, is_aligned_distinct_and_charged_to_the_byte, .timeout = 30) {
    struct device *d = test_open(DEVICE_HOST, 0);
    const size_t sizes[] = {0, 0, 1, 255, 256, 257, 4096, 100000};
    const size_t held[] = {256, 256, 256, 256, 256, 512, 4096, 100096};
    void *memory[8];
    uint64_t total = 0;
    for (int i = 0; i < 8; i++) {
        MUST(device_alloc(d, &memory[i], sizes[i], (enum mem_cause)(i % MEM_CAUSE_COUNT)));
        cr_assert_eq((uintptr_t)memory[i] % 256, 0);
        for (int j = 0; j < i; j++)
            cr_assert_neq(memory[i], memory[j]);
        total += held[i];
        cr_assert_eq(device_ledger(d).total, total);
        cr_assert_eq(device_ledger(d).now[i % MEM_CAUSE_COUNT], held[i]);
    }
    for (int i = 0; i < 8; i++)
        device_free(d, memory[i]);
    device_free(d, NULL);
    struct ledger l = device_ledger(d);
    cr_assert_eq(l.total, 0);
    cr_assert_eq(l.total_peak, total);
    cr_assert_eq(l.capacity, 8 << 20);
    for (int i = 0; i < 8; i++)
        cr_assert(l.now[i] == 0 && l.at_peak[i] == held[i] && l.peak[i] == held[i]);
    device_close(d);
}

Test(memory, no_byte_has_two_owners_and_all_come_back, .timeout = 60) {
    enum { SLOTS = 64, ROUNDS = 4000 };
    struct device *d = test_open(DEVICE_HOST, 0);
    unsigned char *held[SLOTS] = {0};
    size_t sizes[SLOTS] = {0}, count = 0;
    unsigned seed = 1;
    for (int round = 0; round < ROUNDS; round++) {
        int slot = rand_r(&seed) % SLOTS;
        if (held[slot]) { /* no allocation made meanwhile has overwritten it */
            for (size_t i = 0; i < sizes[slot]; i += 97)
                cr_assert_eq(held[slot][i], (unsigned char)slot,
                             "round %d: memory of slot %d was overwritten", round, slot);
            device_free(d, held[slot]);
            held[slot] = NULL;
            count--;
        } else {
            void *memory;
            sizes[slot] = (size_t)(rand_r(&seed) % 100000);
            MUST(device_alloc(d, &memory, sizes[slot], MEM_ACTIVATIONS));
            held[slot] = memory;
            memset(memory, slot, sizes[slot]);
            count++;
        }
    }
    cr_assert_gt(count, 0);
    for (int slot = 0; slot < SLOTS; slot++)
        device_free(d, held[slot]);
    void *all; /* one range again: all neighbours were joined */
    MUST(device_alloc(d, &all, 8 << 20, MEM_PARAMS));
    device_close(d);
}

Test(memory, many_holes_may_open_without_an_allocation_between, .timeout = 30) {
    enum { COUNT = 5000 };
    struct device *d = test_open(DEVICE_HOST, 0);
    static void *piece[COUNT];
    void *all;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++)
            MUST(device_alloc(d, &piece[i], 256, MEM_INPUT));
        for (int i = round; i < COUNT; i += 2) /* each free makes a separate range: 2,500 of them */
            device_free(d, piece[i]);
        for (int i = 1 - round; i < COUNT; i += 2)
            device_free(d, piece[i]);
        MUST(device_alloc(d, &all, 8 << 20, MEM_INPUT));
        device_free(d, all);
    }
    device_close(d);
}

Test(memory, running_out_says_who_holds_what, .timeout = 30) {
    struct device *d = test_open(DEVICE_HOST, 3);
    void *params, *activations, *more;
    MUST(device_alloc(d, &params, 1 << 20, MEM_PARAMS));
    MUST(device_alloc(d, &activations, 6 << 20, MEM_ACTIVATIONS));
    cr_assert_eq(device_alloc(d, &more, 3 << 20, MEM_GRADS), ERR_MEMORY);
    cr_assert_null(more);
    cr_assert_str_eq(
        error_message(),
        "out of memory on device 3: 3 MiB asked for grads, 1 MiB of 8 MiB free, held: "
        "activations 6 MiB, "
        "params 1 MiB: use a smaller batch or model, or open the device with more memory");
    cr_assert_eq(device_ledger(d).now[MEM_GRADS], 0);
    cr_assert_eq(device_alloc(d, &more, SIZE_MAX, MEM_GRADS), ERR_MEMORY);
    cr_assert_eq(device_alloc(d, &more, SIZE_MAX - 300, MEM_GRADS), ERR_MEMORY);

    device_free(d, params); /* 1 MiB before and 1 MiB after it: room for 2, but not in one piece */
    cr_assert_eq(device_alloc(d, &more, 2 << 20, MEM_GRADS), ERR_MEMORY);
    MUST_SAY("2 MiB asked for grads, 2 MiB of 8 MiB free (largest piece 1 MiB), held: activations "
             "6 MiB");
    MUST(device_alloc(d, &more, 1 << 20, MEM_GRADS));
    MUST(device_alloc(d, &more, 1 << 20, MEM_GRADS));
    cr_assert_eq(device_alloc(d, &more, 0, MEM_GRADS), ERR_MEMORY);
    device_close(d);
}

static void *alloc_and_free(void *argument) {
    struct device *d = argument;
    for (int i = 0; i < 500; i++) {
        void *memory;
        MUST(device_alloc(d, &memory, (size_t)(1 + i * 37 % 5000), MEM_COMM));
        memset(memory, 1, 1);
        device_free(d, memory);
    }
    return NULL;
}

Test(memory, threads_may_share_a_device, .timeout = 60) {
    struct device *d = test_open(DEVICE_HOST, 0);
    pthread_t threads[4];
    for (int t = 0; t < 4; t++)
        pthread_create(&threads[t], NULL, alloc_and_free, d);
    for (int t = 0; t < 4; t++)
        pthread_join(threads[t], NULL);
    cr_assert_eq(device_ledger(d).total, 0);
    device_close(d);
}

Test(memory, checked_devices_hand_out_nan_and_unchecked_ones_commit_nothing, .timeout = 30) {
    struct device *d = test_open(DEVICE_HOST, 0);
    float *x = test_floats(d, 100);
    for (int i = 0; i < 100; i++)
        cr_assert(isnan(x[i]));
    device_close(d);

    struct device_config config = test_config(DEVICE_HOST, 0);
    config.check_operands = 0;
    config.memory_bytes =
        64ull << 30; /* more than the machine has: pages are committed when touched */
    MUST(device_open(&d, &config));
    void *memory;
    MUST(device_alloc(d, &memory, 60ull << 30, MEM_PARAMS));
    ((char *)memory)[59ull << 30] = 1;
    device_close(d);
}

Test(memory, the_host_gives_its_own, .timeout = 30) {
    struct device *d = test_open(DEVICE_HOST, 0);
    void *memory, *none;
    MUST(device_host_alloc(d, &memory, 1000));
    memset(memory, 1, 1000);
    MUST(device_host_alloc(d, &none, 0));
    device_host_free(d, none);
    cr_assert_eq(device_host_alloc(d, &none, SIZE_MAX), ERR_MEMORY);
    cr_assert_null(none);
    cr_assert_eq(device_ledger(d).total, 0);
    device_host_free(d, memory);
    device_host_free(d, NULL);
    device_close(d);
}

/* Copies from and to memory that is not pinned go by way of a buffer, piece by piece. */
Test(memory, any_host_memory_can_be_copied, .timeout = 30) {
    static const size_t sizes[] = {1, 65535, 65536, 65537, 200001};
    static char from[200001], to[200001];
    struct device *d = test_open(DEVICE_HOST, 0);
    char *pinned;
    void *memory;
    MUST(device_alloc(d, &memory, sizeof from, MEM_INPUT));
    MUST(device_host_alloc(d, (void **)&pinned, sizeof from));
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (char)(i * 7 >> 3);
    for (int s = 0; s < 5; s++)
        for (int way = 0; way < 4; way++) {
            const char *source = way & 1 ? memcpy(pinned, from, sizeof from) : from;
            MUST(copy_to_device(device_compute(d), memory, source, sizes[s]));
            char *target = way & 2 ? pinned : to;
            memset(target, 0, sizeof to);
            MUST(copy_to_host(device_compute(d), target, memory, sizes[s]));
            MUST(stream_sync(device_compute(d)));
            cr_assert(!memcmp(target, from, sizes[s]), "%zu bytes, way %d", sizes[s], way);
            cr_assert(sizes[s] == sizeof to || !target[sizes[s]], "and no more");
        }
    device_host_free(d, pinned);
    device_free(d, memory);
    device_close(d);
}

Test(open, what_is_not_there_is_refused_with_a_way_out, .timeout = 30) {
    struct device *d;
    struct device_config good = test_config(DEVICE_HOST, 0), c;
    c = good, c.index = -1;
    cr_assert_eq(device_open(&d, &c), ERR_USAGE);
    c = good, c.index = 64;
    cr_assert_eq(device_open(&d, &c), ERR_USAGE);
    MUST_SAY("device 64");
    c = good, c.memory_bytes = 0;
    cr_assert_eq(device_open(&d, &c), ERR_USAGE);
    MUST_SAY("give its size in bytes");
    c = good, c.memory_bytes = UINT64_MAX;
    cr_assert_eq(device_open(&d, &c), ERR_USAGE);
    c = good, c.index = 2, c.memory_bytes = 1ull << 60; /* no address space is that large */
    cr_assert_neq(device_open(&d, &c), OK);
    MUST_SAY("memory of device 2: 1 EiB");
    MUST_SAY("open the device with less memory");
    cr_assert_null(d);
    c = good, c.timeout_s = NAN;
    cr_assert_eq(device_open(&d, &c), ERR_USAGE);
    c = good, c.timeout_s = -1;
    cr_assert_eq(device_open(&d, &c), ERR_USAGE);
    device_close(NULL);
}

Test(open, a_device_tells_what_it_is, .timeout = 30) {
    struct device_config c = test_config(DEVICE_HOST, 5);
    struct device *d;
    c.memory_bytes = 1;
    c.timeout_s = 0;
    MUST(device_open(&d, &c));
    cr_assert_str_eq(device_name(d), "cpu(5)");
    cr_assert_eq(device_index(d), 5);
    cr_assert_eq(device_ledger(d).capacity, 1);
    cr_assert_eq(device_config(d)->timeout_s, 300);
    cr_assert_eq(device_layout(d), LAYOUT_N16);
    device_close(d);
    c.reference_math = 1;
    MUST(device_open(&d, &c));
    cr_assert_eq(device_layout(d), LAYOUT_PLAIN);
    device_close(d);
}

/* The descriptors are given back before anything is asserted: a report needs one. */
Test(memory, no_descriptor_left_says_what_to_do, .timeout = 30) {
    struct device_config config = test_config(DEVICE_HOST, 0);
    struct device *d;
    struct rlimit before, few;
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 3; /* the standard ones */
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
    int code = device_open(&d, &config);
    setrlimit(RLIMIT_NOFILE, &before);
    cr_assert_eq(code, ERR_FAILED);
    MUST_SAY("memory of device 0: 8 MiB: memfd_create: Too many open files");
    MUST_SAY("ulimit -n");
}

/* Puts a file under a root of its own, where host_memory_available reads instead of /. */
static void put(const char *root, const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(full, 0700);
    }
    FILE *file = fopen(full, "w");
    cr_assert_not_null(file, "%s", full);
    fputs(text, file);
    fclose(file);
}

static void remove_tree(const char *root) {
    char command[512];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    cr_assert_eq(system(command), 0);
}

Test(available, is_the_least_of_machine_and_cgroups, .timeout = 30) {
    const uint64_t KIB = 1024, MIB = 1 << 20;
    char root[] = "/tmp/duet-test-XXXXXX";
    cr_assert_not_null(mkdtemp(root));
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    cr_assert_geq(host_memory_available(root), MIB, "without /proc sysconf is asked");
    cr_assert_leq(host_memory_available(root), all);
    put(root, "/proc/meminfo", "MemTotal: 9000 kB\nMemFree:   1 kB\nMemAvailable:    400000 kB\n");
    cr_assert_eq(host_memory_available(root), 400000 * KIB);

    put(root, "/proc/self/cgroup", "9:cpu,cpuacct:/x\n0::/user/job\n");
    put(root, "/sys/fs/cgroup/user/job/memory.max", "max\n");
    put(root, "/sys/fs/cgroup/user/job/memory.current", "1048576\n");
    cr_assert_eq(host_memory_available(root), 400000 * KIB, "no limit");
    /* the parent's limit counts: 100 MiB */
    put(root, "/sys/fs/cgroup/user/memory.max", "104857600\n");
    put(root, "/sys/fs/cgroup/user/memory.current", "31457280\n");
    cr_assert_eq(host_memory_available(root), 70 * MIB);
    put(root, "/sys/fs/cgroup/user/memory.stat", "anon 5\ninactive_file 10485760\n");
    cr_assert_eq(host_memory_available(root), 80 * MIB, "cache is given back");
    put(root, "/sys/fs/cgroup/user/job/memory.max", "2097152\n");
    cr_assert_eq(host_memory_available(root), 1 * MIB, "the least of all");
    put(root, "/sys/fs/cgroup/user/job/memory.current", "3000000\n");
    cr_assert_eq(host_memory_available(root), 0, "over its limit");

    /* in a container, whose mount is its own cgroup */
    put(root, "/proc/self/cgroup", "0::/not/visible/inside\n");
    put(root, "/sys/fs/cgroup/memory.max", "209715200\n");
    put(root, "/sys/fs/cgroup/memory.current", "10485760\n");
    cr_assert_eq(host_memory_available(root), 190 * MIB);
    remove_tree(root);
}

Test(available, the_default_is_shared_by_the_devices, .timeout = 30) {
    uint64_t one = device_default_memory(1), four = device_default_memory(4);
    cr_assert_leq(one, 16ull << 30);
    cr_assert_geq(four, 2 << 20);
    cr_assert_lt(four, one);
    cr_assert_eq(four % (2 << 20), 0);
    cr_assert_eq(device_default_memory(0) > 0, 1);
}
