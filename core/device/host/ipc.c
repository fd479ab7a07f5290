/* Maps device memory of another process, like CUDA IPC. The exporter's memory is a file. The
 * importer opens its descriptor through /proc (comm/peers.h) and maps the pages that contain the
 * exported range. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "device/host/host.h"

struct mapping {
    void *memory; /* the address that import returned */
    void *pages;  /* start of the mapping */
    size_t bytes; /* size of the mapping */
    struct mapping *next;
};

int host_export(struct device *device, struct memory_handle *handle, int *fd) {
    (void)handle;
    *fd = device_is_dry(device) ? -1 : ((struct host_device *)device)->memfd.fd;
    return OK;
}

int host_import(struct device *device, const struct memory_handle *handle, int fd, void **out) {
    struct host_device *d = (struct host_device *)device;
    if (device_is_dry(device)) return *out = dry_imported(), OK;
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
