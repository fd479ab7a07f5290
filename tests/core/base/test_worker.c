/* Workers run tasks in order and keep their errors. A task can be awaited, taken back and lost. */
#include "base/worker.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/harness/harness.h"

enum { TASKS = 20 };

struct note {
    atomic_int *count;
    int order, fails;
    atomic_int *gate; /* not NULL: runs until it is open */
};

static int take_note(void *context) {
    struct note *note = context;
    while (note->gate && !atomic_load(note->gate))
        usleep(100);
    note->order = (*note->count)++;
    return note->fails ? fail(ERR_CHECK, "task %d", note->order) : OK;
}

static struct worker *worker_of(int threads) {
    struct worker *worker;
    cr_assert_eq(worker_new(&worker, threads + 1), OK);
    cr_assert_eq(worker_start(worker, threads, "test"), OK, "%s", error_message());
    return worker;
}

/* With one thread, which in the second round is helped, and with none, where whoever waits runs
 * them. */
Test(worker, tasks_run_in_their_order_and_keep_their_errors) {
    for (int threads = 0; threads <= 1; threads++) {
        struct worker *worker = worker_of(threads);
        atomic_int count = 0;
        struct note notes[TASKS];
        struct task tasks[TASKS];
        for (int round = 0; round < 2; round++) {
            for (int i = 0; i < TASKS; i++) {
                notes[i] = (struct note){.count = &count, .fails = (i + round) % 3 == 0};
                if (!round) tasks[i] = (struct task){.run = take_note, .context = &notes[i]};
                worker_give(worker, &tasks[i]);
            }
            for (int i = TASKS - 1; i >= 0; i--) {
                char want[16];
                int order = round * TASKS + i;
                snprintf(want, sizeof want, "task %d", order);
                if (round) worker_help(worker, &tasks[i]);
                cr_assert(worker_wait(worker, &tasks[i], WORKER_NEVER));
                cr_assert(worker_has_ended(worker, &tasks[i]));
                cr_assert_eq(notes[i].order, order);
                fail(ERR_FAILED, "of this thread");
                cr_assert_eq(task_end(&tasks[i]), notes[i].fails ? ERR_CHECK : OK);
                cr_assert_str_eq(error_message(), notes[i].fails ? want : "of this thread");
            }
        }
        cr_assert(worker_free(worker, WORKER_NEVER));
    }
    cr_assert(worker_free(NULL, 0));
}

/* The caller runs a task if no other is before it, and otherwise waits for its turn. */
Test(worker, a_caller_keeps_the_order) {
    struct worker *worker = worker_of(1);
    atomic_int count = 0, gate = 0;
    struct note notes[] = {{.count = &count, .gate = &gate}, {.count = &count}, {.count = &count}};
    struct task tasks[3];
    for (int i = 0; i < 3; i++)
        tasks[i] = (struct task){.run = take_note, .context = &notes[i]};
    worker_run(worker, &tasks[1]);
    cr_assert_eq(notes[1].order, 0);
    worker_give(worker, &tasks[0]);
    worker_give(worker, &tasks[1]);
    cr_assert(!worker_wait(worker, &tasks[1], now_ns() + 1000000));
    gate = 1;
    worker_run(worker, &tasks[2]);
    cr_assert_eq(notes[0].order, 1);
    cr_assert_eq(notes[1].order, 2);
    cr_assert_eq(notes[2].order, 3);
    cr_assert(worker_free(worker, WORKER_NEVER));
}

Test(worker, threads_run_at_the_same_time_and_a_task_can_be_taken_back) {
    struct worker *worker = worker_of(2);
    atomic_int count = 0, gates[3] = {0};
    struct note notes[3];
    struct task tasks[3];
    for (int i = 0; i < 3; i++) {
        notes[i] = (struct note){.count = &count, .gate = &gates[i]};
        tasks[i] = (struct task){.run = take_note, .context = &notes[i]};
        worker_give(worker, &tasks[i]);
    }
    gates[1] = 1; /* the second one ends while the first is still running */
    cr_assert(worker_wait(worker, &tasks[1], WORKER_NEVER));
    cr_assert(!worker_take_back(worker, &tasks[1]));
    while (worker_take_back(worker, &tasks[2])) /* until the thread has started it */
        worker_give(worker, &tasks[2]), usleep(1000);
    struct note unused = {.count = &count};
    struct task never = {.run = take_note, .context = &unused};
    worker_give(worker, &never); /* both threads are busy */
    cr_assert(worker_take_back(worker, &never));
    gates[0] = gates[2] = 1;
    cr_assert(worker_free(worker, WORKER_NEVER));
    cr_assert_eq(count, 3);
}

/* A thread that does not come back keeps its worker, which stays as it is. */
Test(worker, a_lost_thread_keeps_its_worker) {
    static struct worker *worker; /* static, so that sanitizers do not report a leak */
    static atomic_int count, gate;
    static struct note note = {.count = &count, .gate = &gate};
    static struct task task = {.run = take_note, .context = &note};
    worker = worker_of(1);
    worker_give(worker, &task);
    cr_assert(!worker_free(worker, now_ns() + 1000000));
    gate = 1;
    while (!count)
        usleep(100);
}
