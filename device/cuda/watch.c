/* Work that can fail without CUDA knowing: a collective stands on a stream and waits for another
 * rank's word, and who put it there knows how long it may, and for whom. It adds a watch; each
 * wait of this device that lasts asks all of them, and each sync asks once more when it has what
 * it waited for.
 *
 * The lock is held while they are asked, so a watch that is removed is not in use any more. */
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
