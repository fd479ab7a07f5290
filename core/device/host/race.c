/* Tells ThreadSanitizer about a kernel's accesses.
 *
 * The kernels (device/host/kernels) are compiled without ThreadSanitizer, because its function call
 * for each access makes loops over 64-byte vectors 70 times slower, and kernels share only the
 * tensors. Instead, the thread that is about to run a kernel reports once which tensors the kernel
 * reads and writes. So a kernel that runs while another thread or stream uses its operands is still
 * found (tests/core/device/test_race.c); the report then names this file.
 *
 * LOSS_SUM and HASH write one number into a log, while another thread may write the number next to
 * it, so only that number is reported. In every other build this file does nothing. */
#include "device/host/host.h"

#if defined(__SANITIZE_THREAD__)

void __tsan_read_range(const void *memory, size_t bytes);
void __tsan_write_range(void *memory, size_t bytes);
void __tsan_read8(const void *memory);
void __tsan_write8(void *memory);

enum { LINE = 64, WHOLE = 4096 };

/* Reports a small tensor completely. For a large one it reports both edges, and 8 bytes of each
 * cache line between them, which is enough for two users to collide. */
static void touch(const struct tensor *t, int writes) {
    size_t bytes = tensor_bytes(t);
    char *begin = t->data, *end = begin + bytes;
    if (!begin) return;
    if (bytes <= 2 * WHOLE) {
        writes ? __tsan_write_range(begin, bytes) : __tsan_read_range(begin, bytes);
        return;
    }
    char *line = begin + WHOLE;
    writes ? __tsan_write_range(begin, WHOLE) : __tsan_read_range(begin, WHOLE);
    writes ? __tsan_write_range(end - WHOLE, WHOLE) : __tsan_read_range(end - WHOLE, WHOLE);
    for (line += -(uintptr_t)line % LINE; line < end - WHOLE; line += LINE)
        writes ? __tsan_write8(line) : __tsan_read8(line);
}

/* The one element of a log that this launch writes. */
static void write_log(const struct tensor *log, const struct step_block *step, int column) {
    size_t element = (size_t)step->row * (size_t)log->dims[1] + (size_t)column;
    if (log->data)
        __tsan_write_range((char *)log->data + element * dtype_bytes(log->dtype),
                           dtype_bytes(log->dtype));
}

void host_race_check(enum op op, const struct op_args *args) {
    for (int i = 0; i < OP_INPUTS; i++)
        touch(&args->in[i], 0);
    if (args->step) __tsan_read_range(args->step, sizeof *args->step);
    for (int i = 0; i < OP_OUTPUTS; i++) {
        const struct tensor *out = &args->out[i];
        if (op == OP_LOSS_SUM || op == OP_HASH)
            write_log(out, args->step, op == OP_HASH ? args->p.hash.column : args->p.loss.column);
        else
            touch(out, 1);
    }
}

#else

void host_race_check(enum op op, const struct op_args *args) {
    (void)op;
    (void)args;
}

#endif
