/* Watches work that can fail without CUDA knowing: a collective that waits on a stream for another
 * rank's flag. The executor that enqueued it knows how long it may wait, and for which rank, and
 * adds a watch. Every long wait of this device polls all watches, and every sync polls them once
 * more at its end.
 *
 * Polling holds the lock, so a watch that has been removed is no longer in use. */
#include "device/cuda/cuda.h"

void cuda_watch_add(struct cuda_device *d, struct cuda_watch *watch) {
    pthread_mutex_lock(&d->watch_lock);
    watch->next = d->watches;
    d->watches = watch;
    pthread_mutex_unlock(&d->watch_lock);
}

void cuda_watch_remove(struct cuda_device *d, struct cuda_watch *watch) {
    pthread_mutex_lock(&d->watch_lock);
    struct cuda_watch **link = &d->watches;
    while (*link && *link != watch)
        link = &(*link)->next;
    if (*link) *link = watch->next;
    pthread_mutex_unlock(&d->watch_lock);
}

int cuda_watch_look(const struct device *device, int waiting) {
    struct cuda_device *d = (struct cuda_device *)device;
    int code = OK;
    pthread_mutex_lock(&d->watch_lock);
    for (struct cuda_watch *w = d->watches; w && !code; w = w->next)
        code = w->look(w, waiting);
    pthread_mutex_unlock(&d->watch_lock);
    return code;
}

void cuda_watch_release(struct cuda_device *d) {
    pthread_mutex_lock(&d->watch_lock);
    for (struct cuda_watch *w = d->watches; w; w = w->next)
        w->release(w);
    pthread_mutex_unlock(&d->watch_lock);
}
