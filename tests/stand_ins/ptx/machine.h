/* The machine that runs a program: a block at a time, its warps one after another up to the next
 * barrier.
 *
 * Each lane has its own place in the program. The lanes at the lowest place run first, so that
 * lanes which parted at a branch meet again where both ways join, which nvcc puts behind them.
 *
 * What is checked, because a GPU would fault, hang or compute something else there:
 *   - each access lies within one allocation, or within the block's shared, the thread's local or
 *     the kernel's parameter memory, and at a multiple of its size
 *   - a barrier is reached by all threads of the block, and at the same place
 *   - two threads that no barrier orders do not access the same shared memory, unless both read
 *   - bytes that cp.async brings are not touched before they have come
 *   - mma has all lanes of its warp
 *   - of a dependent launch, no thread touches global memory before griddepcontrol.wait
 * The first fault ends the grid. */
#ifndef TESTS_STAND_INS_PTX_MACHINE_H
#define TESTS_STAND_INS_PTX_MACHINE_H

#include "tests/stand_ins/ptx/program.h"

enum ptx_fault_kind {
    PTX_NO_FAULT,
    PTX_FAULT_ADDRESS,
    PTX_FAULT_ALIGNMENT,
    PTX_FAULT_RACE,
    PTX_FAULT_BARRIER,
    PTX_FAULT_OTHER
};
struct ptx_fault {
    enum ptx_fault_kind kind;
    char text[400];
};

/* Memory that the grid may access. */
struct ptx_range {
    uintptr_t from, to;
};

struct ptx_grid {
    const struct ptx_program *program;
    const void *param;
    uint32_t blocks[3], threads[3];
    const struct ptx_range *ranges;
    int range_count;
    int dependent; /* 1: started before the kernel in front of it has ended */
};

struct ptx_machine;
/* NULL: out of memory. A machine belongs to one thread; several may run blocks of one grid. */
struct ptx_machine *ptx_machine_new(const struct ptx_grid *grid);
/* Runs block (x, y, z); returns 0 with a fault. */
int ptx_run_block(struct ptx_machine *m, const uint32_t block[3], struct ptx_fault *fault);
uint64_t ptx_machine_count(const struct ptx_machine *m); /* instructions of warps run so far */
void ptx_machine_free(struct ptx_machine *m);

/* ---- for its parts ---- */

enum { PTX_LANES = 32, PTX_CALLS = 4 };

/* Generic addresses of memory that is not global, which no process has. */
#define PTX_TAG_SHIFT 56
#define PTX_TAG(space) ((uint64_t)((space) + 1) << PTX_TAG_SHIFT)

/* What is known of a few bytes of shared memory (race.c). */
struct ptx_touch {
    uint32_t written, read;  /* in which interval between barriers, the last time */
    uint16_t writer, reader; /* which thread; PTX_MANY: more than one */
    uint32_t awaited;        /* cp.async brings it: by thread awaited - 1 */
};
enum { PTX_MANY = 0xffff };

/* A copy of cp.async that has not been waited for. */
struct ptx_copy {
    uint32_t to;
    uint8_t lane, bytes;
    const char *from;
};

struct ptx_warp {
    unsigned char *registers;
    uint32_t mask;    /* the lanes that run the present instruction */
    uint32_t here;    /* its place */
    uint32_t live;    /* lanes that have not ended */
    uint32_t waiting; /* of those, at a barrier */
    uint32_t follows; /* those that have waited for the kernel in front */
    uint32_t pc[PTX_LANES];
    uint32_t back[PTX_LANES][PTX_CALLS]; /* where calls return to */
    uint8_t depth[PTX_LANES];
    uint32_t first_thread;
    const struct ptx_range *near; /* the range of the last access */
    struct ptx_copy *copies;
    uint32_t copy_count, copy_room;
    uint32_t polls;
    struct ptx_machine *machine;
};

struct ptx_machine {
    struct ptx_grid grid;
    struct ptx_fault fault;
    uint32_t block[3];
    uint32_t thread_count, warp_count;
    struct ptx_warp *warps;
    unsigned char *registers, *shared, *local, *call;
    struct ptx_touch *touches;
    int grain_shift;
    uint32_t interval; /* between two barriers, or from a block's begin; never the same again */
    uint64_t count;
};

/* The first fault is kept: which thread, where, and `format`. */
void ptx_fault(struct ptx_warp *w, enum ptx_fault_kind kind, int lane, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* race.c: a thread writes [offset, offset + bytes) of shared memory; each active lane l reads
 * [at[l], at[l] + bytes). Return 0 with a fault. */
int ptx_touch_reads(struct ptx_warp *w, const uint64_t at[PTX_LANES], uint32_t bytes);
int ptx_touch_write(struct ptx_warp *w, int lane, uint32_t offset, uint32_t bytes);
int ptx_touch_await(struct ptx_warp *w, int lane, uint32_t offset, uint32_t bytes);
void ptx_touch_arrived(struct ptx_warp *w, int lane, uint32_t offset, uint32_t bytes);

/* memory.c: the host's addresses of what the active lanes access, bytes in all for each lane, by
 * register at[operand] + offset. Returns 0 with a fault. */
struct ptx_access {
    enum ptx_space space;
    uint32_t base; /* register */
    int wide;
    int64_t offset;
    uint32_t bytes;
    int writes;
};
int ptx_reach(struct ptx_warp *w, const struct ptx_access *access, char *host[PTX_LANES]);

/* Called by loads that may be polls: now and then the thread gives its core away. */
void ptx_poll(struct ptx_warp *w);

#define PTX_AT(type, i) ((type *)(void *)(w->registers + in->at[i]))

/* Runs a statement for each active lane l. Where all are active the compiler makes vector
 * instructions of it; a destination may be one of the operands. */
#define PTX_EACH_LANE(...)                                             \
    do {                                                               \
        if (w->mask == 0xffffffffu) {                                  \
            _Pragma("GCC ivdep") for (int l = 0; l < PTX_LANES; l++) { \
                __VA_ARGS__;                                           \
            }                                                          \
        } else {                                                       \
            for (uint32_t m_ = w->mask; m_; m_ &= m_ - 1) {            \
                int l = __builtin_ctz(m_);                             \
                __VA_ARGS__;                                           \
            }                                                          \
        }                                                              \
    } while (0)

#endif
