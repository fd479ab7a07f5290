/* Fingerprints of values and gradients: see prints.h. */
#include "report/pictures/prints.h"

int is_hashed(const struct run_record *run, int device) {
    return run->hashes[device] && run->final_hashes[device];
}

/* FNV-1a over the bytes of the hashes, then folded to 32 bits. */
static uint64_t add_hashes(uint64_t sum, const uint64_t *hashes, int count) {
    for (int i = 0; i < count; i++)
        for (int shift = 0; shift < 64; shift += 8)
            sum = (sum ^ (hashes[i] >> shift & 255)) * 0x100000001b3;
    return sum;
}

uint32_t fingerprint(const struct run_record *run, int device, int step, int grads, int buffers) {
    uint64_t sum = 0xcbf29ce484222325;
    int parameters = run->parameters;
    if (step >= run->steps) {
        sum = add_hashes(sum, run->final_hashes[device], parameters + (buffers ? run->buffers : 0));
    } else {
        size_t width = 2 * (size_t)parameters + (size_t)run->buffers;
        const uint64_t *row = run->hashes[device] + (size_t)step * width;
        sum = add_hashes(sum, row + (grads ? parameters : 0), parameters);
        if (!grads && buffers) sum = add_hashes(sum, row + 2 * parameters, run->buffers);
    }
    return (uint32_t)(sum ^ sum >> 32);
}

int steps_to_print(const struct run_record *run, int steps[PRINTED_STEPS]) {
    int n = 0;
    for (int i = 0; i < PRINTED_STEPS && run->steps; i++) {
        int step = (int)((int64_t)i * (run->steps - 1) / (PRINTED_STEPS - 1));
        if (!n || step > steps[n - 1]) steps[n++] = step;
    }
    return n;
}
