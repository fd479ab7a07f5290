/* Flags tell another process that data are ready.
 *
 * A flag holds a 64-bit epoch. One writer raises it; waiters wait until it is >= the epoch that
 * they need. It never decreases, so no reset can race with a waiter. The writer's stores before
 * comm_post_flag are visible to a waiter after comm_wait_flag (release, acquire).
 *
 * Sleeping. A futex compares 32 bits, so waiters sleep on the low 32 bits of the epoch. (On a
 * little-endian processor these are its first four bytes; an assertion below requires that.) The
 * kernel puts a waiter to sleep only if these bits are still those that it last saw. Waiters
 * announce themselves in `sleepers`, so that a writer makes no system call if no waiter sleeps:
 *
 *     writer                                waiter
 *     W1  epoch = e                         R1  sleepers += 1
 *     W2  if (sleepers) wake all            R2  seen = epoch
 *                                           R3  if (seen < e) sleep while low 32 bits == seen
 *                                           R4  sleepers -= 1
 *
 * No wake-up is lost. W1, W2, R1 and R2 are sequentially consistent, so all processors agree on one
 * order of them. If R2 did not see W1, then R2 comes before W1 in that order, hence R1 before W2,
 * so the writer sees the sleeper and wakes it. The waiter is then either asleep and wakes, or not
 * yet asleep, and R3 finds the low 32 bits changed. (With release and acquire only, writer and
 * waiter could both read the old value, because the store buffer of a processor may delay W1 and
 * R1.) The low 32 bits equal `seen` again only after exactly 2^32 epochs; the waiter then sleeps
 * one slice of wait.c too long.
 *
 * A waiter that is killed between R1 and R4 leaves `sleepers` too high. That costs the writer a
 * needless system call at each post, but no wake-up is lost. */
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "comm/rank.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "a futex waits on the first four bytes of the epoch");
_Static_assert(sizeof(struct comm_flag) == 128, "flags lie 128 bytes apart");

static const int64_t SPIN_NS = 5000;        /* about as long as a sleep and a wake-up take */
static const int64_t SHORT_SPIN_NS = 1000;  /* used if the thread yields before it sleeps */
static const int64_t LONG_TURN_NS = 300000; /* a yield this long: a crowded core */
static const int64_t CROWDED_NS = 20000000; /* how long a rank does not yield after that */
enum {
    SPINS_PER_CLOCK = 16, /* reads of the flag between two reads of the clock */
    SPINS_AT_FIRST = 32   /* the same before the first one: an answer from a peer needs fewer */
};

static int reached(const struct comm_flag *flag, uint64_t epoch) {
    return __atomic_load_n(&flag->epoch, __ATOMIC_ACQUIRE) >= epoch;
}

static void pause_briefly(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int look(const struct comm_flag *flag, uint64_t epoch, int times) {
    for (int i = 0; i < times; i++) {
        if (reached(flag, epoch)) return 1;
        pause_briefly();
    }
    return 0;
}

static int spin(const struct comm_flag *flag, uint64_t epoch, int64_t ns) {
    int64_t end = now_ns() + ns;
    do
        if (look(flag, epoch, SPINS_PER_CLOCK)) return 1;
    while (now_ns() < end);
    return 0;
}

/* Another thread gets the core: perhaps the rank that this one waits for.
 *
 * If other programs keep the cores busy, a rank that yields loses a whole slice of the scheduler,
 * some milliseconds, while a sleeping rank is woken at once. The first such yield is noticed, and
 * for a while this rank sleeps instead. With more ranks than cores the long turn may be another
 * rank's, so it proves nothing. */
static int spin_in_turn(struct comm *comm, const struct comm_flag *flag, uint64_t epoch,
                        int64_t spin_ns) {
    int64_t now = now_ns(), end = now + spin_ns, before;
    if (now < __atomic_load_n(&comm->crowded, __ATOMIC_RELAXED)) return 0;
    do {
        before = now;
        sched_yield();
        now = now_ns();
        if (comm->spin && now - before > LONG_TURN_NS)
            __atomic_store_n(&comm->crowded, now + CROWDED_NS, __ATOMIC_RELAXED);
        if (reached(flag, epoch)) return 1;
    } while (now < end);
    return 0;
}

/* R1 to R4. May return before the flag has reached the epoch: the caller checks again. */
static void sleep_on(struct comm_flag *flag, uint64_t epoch, int64_t most_ns) {
    struct timespec most = {.tv_sec = most_ns / 1000000000, .tv_nsec = most_ns % 1000000000};
    __atomic_fetch_add(&flag->sleepers, 1, __ATOMIC_SEQ_CST);
    uint64_t seen = __atomic_load_n(&flag->epoch, __ATOMIC_SEQ_CST);
    if (seen < epoch) syscall(SYS_futex, &flag->epoch, FUTEX_WAIT, (uint32_t)seen, &most, NULL, 0);
    __atomic_fetch_sub(&flag->sleepers, 1, __ATOMIC_SEQ_CST);
}

int wait_flag(struct comm *comm, struct comm_flag *flag, uint64_t epoch, struct wait *wait) {
    int64_t spin_ns = wait->reason.spin_ns;
    if (reached(flag, epoch)) return OK;
    if (comm->spin && spin(flag, epoch, spin_ns > 0 ? SHORT_SPIN_NS : SPIN_NS)) return OK;
    if (spin_ns > 0) leave_shared_core(comm, wait->reason.peer);
    if (spin_ns > 0 && spin_in_turn(comm, flag, epoch, spin_ns)) return OK;
    int64_t slice_ns;
    int code = OK;
    while (!code && !reached(flag, epoch)) {
        code = wait_poll(wait, &slice_ns);
        if (!code) sleep_on(flag, epoch, slice_ns);
    }
    comm_distant_end(wait);
    return code;
}

int comm_wait_flag(struct comm *comm, struct comm_flag *flag, uint64_t epoch,
                   const struct comm_wait_reason *reason) {
    /* The common cases do not read the clock. */
    if (reached(flag, epoch) || (comm->spin && look(flag, epoch, SPINS_AT_FIRST))) return OK;
    struct wait wait;
    wait_start(&wait, comm, reason);
    wait.epoch = &flag->epoch;
    wait.target = epoch;
    return wait_flag(comm, flag, epoch, &wait);
}

void comm_post_flag(struct comm_flag *flag, uint64_t epoch) {
    __atomic_store_n(&flag->epoch, epoch, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&flag->sleepers, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &flag->epoch, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
