/* A data set in shared memory: a mapped set equals the shared one and is read-only, the launcher
 * reads the files once, and an error says in one line what cannot be shared or mapped. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "data/shared_dataset.h"
#include "tests/core/data/synthetic.h"
#include "tests/harness/harness.h"

enum { COUNT = 137 };

/* The rights and the name of the mapping in which `address` lies, from /proc/self/maps. */
static void mapping_of(const void *address, char rights[5], char name[64]) {
    char line[256];
    FILE *file = fopen("/proc/self/maps", "r");
    cr_assert_not_null(file);
    *rights = *name = 0;
    while (fgets(line, sizeof line, file)) {
        unsigned long from, to;
        char its[5], path[64] = "";
        if (sscanf(line, "%lx-%lx %4s %*s %*s %*s %63s", &from, &to, its, path) < 3) continue;
        if ((unsigned long)address < from || (unsigned long)address >= to) continue;
        strcpy(rights, its);
        strcpy(name, path);
    }
    fclose(file);
}

Test(shared_dataset, is_what_was_shared, .timeout = 30) {
    struct dataset whole, shared, mapped[2];
    char rights[5], name[64];
    int fd;
    cr_assert_eq(synthetic_set(&whole, COUNT, 1), OK, "%s", error_message());
    cr_assert_eq(synthetic_set(&shared, COUNT, 1), OK, "%s", error_message());
    cr_assert_eq(dataset_share(&shared, &fd), OK, "%s", error_message());
    cr_assert_null(shared.images, "the private copy is gone");
    for (int i = 0; i < 2; i++)
        cr_assert_eq(dataset_map(&mapped[i], fd), OK, "%s", error_message());
    close(fd);
    for (int i = 0; i < 2; i++) {
        cr_assert_str_eq(mapped[i].name, "synthetic");
        cr_assert(mapped[i].count == COUNT && mapped[i].classes == whole.classes);
        cr_assert(!memcmp(&mapped[i].shape, &whole.shape, sizeof whole.shape));
        cr_assert(!memcmp(mapped[i].images, whole.images, (size_t)COUNT * 784), "copy %d", i);
        cr_assert(!memcmp(mapped[i].labels, whole.labels, COUNT), "copy %d", i);
        mapping_of(mapped[i].images, rights, name);
        cr_assert_str_eq(rights, "r--s", "read-only and shared");
        cr_assert_not_null(strstr(name, "memfd:duet-data"), "%s", name);
    }
    const uint8_t *gone = mapped[0].images;
    dataset_free(&mapped[0]);
    mapping_of(gone, rights, name);
    cr_assert_str_eq(name, "", "it is unmapped");
    dataset_free(&mapped[1]);
    dataset_free(&whole);
}

/* Numbers, with labels and with targets. */
Test(shared_dataset, numbers_too, .timeout = 30) {
    for (int targets = 0; targets < 2; targets++) {
        const struct dataset_config config = {.name = "random",
                                              .shape = {3, 5, 7},
                                              .classes = 6,
                                              .samples = COUNT,
                                              .targets = targets,
                                              .seed = 8};
        struct dataset whole, shared, mapped;
        int fd;
        cr_assert_eq(dataset_make(&whole, &config, 1), OK, "%s", error_message());
        cr_assert_eq(dataset_make(&shared, &config, 1), OK, "%s", error_message());
        cr_assert_eq(dataset_share(&shared, &fd), OK, "%s", error_message());
        cr_assert_eq(dataset_map(&mapped, fd), OK, "%s", error_message());
        close(fd);
        cr_assert(!mapped.images && !mapped.labels && mapped.classes == (targets ? 0 : 6));
        cr_assert_eq(mapped.outputs, targets ? 6 : 0);
        cr_assert(!memcmp(mapped.numbers, whole.numbers, (size_t)COUNT * 105 * sizeof(float)));
        cr_assert(!memcmp(mapped.answers, whole.answers,
                          (size_t)COUNT * (targets ? 6 : 1) * sizeof(float)));
        dataset_free(&mapped);
        dataset_free(&whole);
    }
}

Test(shared_dataset, what_is_none_is_refused, .timeout = 30) {
    struct dataset set;
    char text[4096] = "not a data set";
    int fd = memfd_create("other", 0);
    cr_assert_eq(dataset_map(&set, 999), ERR_FAILED);
    cr_assert_eq(dataset_map(&set, fd), ERR_FAILED, "empty");
    cr_assert_not_null(strstr(error_message(), "no data set was handed over"), "%s",
                       error_message());
    cr_assert_eq(write(fd, text, sizeof text), (ssize_t)sizeof text);
    cr_assert_eq(dataset_map(&set, fd), ERR_FAILED);
    cr_assert(!set.images && !set.map, "nothing is left");
    close(fd);
    /* one byte less than was shared */
    cr_assert_eq(synthetic_set(&set, COUNT, 1), OK);
    cr_assert_eq(dataset_share(&set, &fd), OK, "%s", error_message());
    struct stat about;
    cr_assert_eq(fstat(fd, &about), 0);
    cr_assert_eq(ftruncate(fd, about.st_size - 1), 0);
    cr_assert_eq(dataset_map(&set, fd), ERR_FAILED);
    close(fd);
    dataset_free(&set);
}

/* If memory is short, write reports it. A limit on the size of files stands in for that. */
Test(shared_dataset, no_memory_is_one_line, .timeout = 30) {
    struct dataset set;
    int fd = 7;
    struct rlimit limit = {50000, 50000};
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(synthetic_set(&set, COUNT, 1), OK);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    cr_assert_neq(dataset_share(&set, &fd), OK);
    cr_assert(fd == -1 && !set.images, "nothing is left");
    unsigned long bytes = 0;
    cr_assert_eq(sscanf(error_message(), "data set synthetic: %lu bytes of shared memory", &bytes),
                 1, "%s", error_message());
    cr_assert(bytes >= COUNT * 785 && bytes < COUNT * 785 + 1024, "%lu bytes", bytes);
}
