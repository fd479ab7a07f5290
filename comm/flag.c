/* Flags: how one process tells another that data is ready.
 *
 * A flag is a 64-bit epoch that one writer raises and others wait for with >=. It never goes
 * back, so there is no reset to race with. The writer's plain stores before comm_post_flag are
 * visible to a reader after comm_wait_flag (release, acquire).
 *
 * Sleeping. A futex compares 32 bits, so waiters sleep on the low half of the epoch (the first
 * four bytes: little endian is demanded below). The kernel puts a waiter to sleep only if that
 * half still is what the waiter last saw. To spare the writer a system call when nobody sleeps,
 * waiters announce themselves in `sleepers`:
 *
 *     writer                                waiter
 *     W1  epoch = e                         R1  sleepers += 1
 *     W2  if (sleepers) wake all            R2  seen = epoch
 *                                           R3  if (seen < e) sleep while low half == seen
 *                                           R4  sleepers -= 1
 *
 * No wake-up is lost: W1, W2, R1, R2 are sequentially consistent, so they lie in one order that
 * all processors agree on. If R2 did not see W1, R2 lies before W1, hence R1 before W2, and the
 * writer sees the sleeper. Its wake then finds the waiter asleep, or the waiter finds the low
 * half changed. (With release and acquire alone both could read the old value: the store buffer
 * of every CPU allows it.) The low half equals `seen` again only after exactly 2^32 epochs, and
 * then costs one slice of wait.c.
 *
 * A waiter that is killed between R1 and R4 leaves sleepers too high: a wasted wake, never a
 * lost one. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/rank.h"

#include <linux/futex.h>
#include <limits.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "a futex waits on the first half of the epoch");
_Static_assert(sizeof(struct comm_flag) == 128, "flags lie 128 bytes apart");

static const int64_t SPIN_NS = 5000; /* what a futex sleep and wake-up cost */

static bool reached(const struct comm_flag *flag, uint64_t epoch) {
    return __atomic_load_n(&flag->epoch, __ATOMIC_ACQUIRE) >= epoch;
}

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool spin(const struct comm_flag *flag, uint64_t epoch) {
    int64_t end = now_ns() + SPIN_NS;
    do {
        for (int i = 0; i < 16; i++) {
            if (reached(flag, epoch)) return true;
            pause_briefly();
        }
    } while (now_ns() < end);
    return false;
}

/* R1 to R4; returns early for any reason. */
static void sleep_on(struct comm_flag *flag, uint64_t epoch, int64_t most_ns) {
    struct timespec most = {.tv_sec = most_ns / 1000000000, .tv_nsec = most_ns % 1000000000};
    __atomic_fetch_add(&flag->sleepers, 1, __ATOMIC_SEQ_CST);
    uint64_t seen = __atomic_load_n(&flag->epoch, __ATOMIC_SEQ_CST);
    if (seen < epoch) syscall(SYS_futex, &flag->epoch, FUTEX_WAIT, (uint32_t)seen, &most, NULL, 0);
    __atomic_fetch_sub(&flag->sleepers, 1, __ATOMIC_SEQ_CST);
}

int wait_flag(struct comm *comm, struct comm_flag *flag, uint64_t epoch, struct wait *wait) {
    if (reached(flag, epoch) || (comm->spin && spin(flag, epoch))) return OK;
    int64_t slice_ns;
    while (!reached(flag, epoch)) {
        CHECK(wait_poll(wait, &slice_ns));
        sleep_on(flag, epoch, slice_ns);
    }
    return OK;
}

int comm_wait_flag(struct comm *comm, struct comm_flag *flag, uint64_t epoch,
                   const struct comm_wait_reason *reason) {
    if (reached(flag, epoch)) return OK; /* before the clock is read */
    struct wait wait;
    wait_start(&wait, comm, reason);
    wait.word = &flag->epoch;
    wait.target = epoch;
    return wait_flag(comm, flag, epoch, &wait);
}

void comm_post_flag(struct comm_flag *flag, uint64_t epoch) {
    __atomic_store_n(&flag->epoch, epoch, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&flag->sleepers, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &flag->epoch, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
