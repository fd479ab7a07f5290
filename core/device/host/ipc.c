/* Maps device memory of another process, like CUDA IPC. The exporter's memory is a file. Its
 * descriptor is sent over a unix socket, and the importer maps the pages that contain the exported
 * range. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "device/host/host.h"

/* marks a handle of this kind of device */
static const char MARK[8] = "duet-h1";

struct mapping {
    void *memory; /* the address that import returned */
    void *pages;  /* the start of what is mapped */
    size_t bytes; /* of what is mapped */
    struct mapping *next;
};

int host_export(struct device *device, const void *memory, size_t bytes,
                struct memory_handle *handle, int *fd) {
    const struct host_device *d = (struct host_device *)device;
    memcpy(handle->bytes, MARK, sizeof MARK);
    handle->offset = (uint64_t)((const char *)memory - device->memory);
    handle->size = bytes;
    handle->pid = (int32_t)getpid();
    handle->device = device->config.index;
    *fd = device_is_dry(device) ? -1 : d->memfd.fd;
    return OK;
}

/* The handle came from another process, so it is checked against the file before it is used. */
static int check_handle(const struct memory_handle *handle, int fd) {
    struct stat file;
    if (memcmp(handle->bytes, MARK, sizeof MARK))
        return fail(ERR_FAILED, "import of device memory: the handle is of another kind of device");
    if (fstat(fd, &file))
        return fail_errno(ERR_FAILED, errno, "import of device memory: descriptor %d of process %d",
                          fd, handle->pid);
    uint64_t size = (uint64_t)file.st_size;
    if (handle->size == 0 || handle->offset > size || handle->size > size - handle->offset)
        return fail(ERR_FAILED,
                    "import of device memory: %llu bytes at %llu: outside of the %llu bytes of "
                    "device %d, process %d",
                    (unsigned long long)handle->size, (unsigned long long)handle->offset,
                    (unsigned long long)size, handle->device, handle->pid);
    return OK;
}

int host_import(struct device *device, const struct memory_handle *handle, int fd, void **out) {
    struct host_device *d = (struct host_device *)device;
    if (device_is_dry(device)) return *out = dry_imported(), OK;
    CHECK(check_handle(handle, fd));
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), inside = handle->offset % page;
    struct mapping *m = malloc(sizeof *m);
    if (!m) return fail(ERR_MEMORY, "out of host memory: import of device memory");
    m->bytes = (size_t)(inside + handle->size);
    m->pages = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                    (off_t)(handle->offset - inside));
    if (m->pages == MAP_FAILED) {
        int why = errno;
        free(m);
        return fail_errno(ERR_FAILED, why,
                          "import of device memory: %llu bytes of device %d, process %d",
                          (unsigned long long)handle->size, handle->device, handle->pid);
    }
    m->memory = (char *)m->pages + inside;
    pthread_mutex_lock(&d->imports_lock);
    m->next = d->imports;
    d->imports = m;
    pthread_mutex_unlock(&d->imports_lock);
    *out = m->memory;
    return OK;
}

static void unmap(struct mapping *m) {
    munmap(m->pages, m->bytes);
    free(m);
}

void host_unimport(struct device *device, void *memory) {
    struct host_device *d = (struct host_device *)device;
    pthread_mutex_lock(&d->imports_lock);
    struct mapping **link = &d->imports;
    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    struct mapping *found = *link;
    if (found) *link = found->next;
    pthread_mutex_unlock(&d->imports_lock);
    if (found) unmap(found);
}

void host_unimport_all(struct host_device *d) {
    while (d->imports) {
        struct mapping *m = d->imports;
        d->imports = m->next;
        unmap(m);
    }
}
