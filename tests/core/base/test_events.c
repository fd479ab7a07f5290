/* duet_events: what a program writes is what TensorBoard's format holds, while the file grows and
 * when it is closed; a file without numbers goes; what is refused. */
#include <stdlib.h>

#include "tests/duet/shared.h"
#include "tests/app/cli/tensorboard.h"

Test(api_events, hold_what_was_written, .timeout = 30, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    duet_events *events;
    MUST(duet_events_open(&events, "runs/first"));
    for (int step = 0; step < 300; step++) {
        MUST(duet_events_scalar(events, "Loss/train", 1. / (step + 1), step));
        if (step % 100 == 0) MUST(duet_events_scalar(events, "Accuracy", step * .5, step));
    }
    struct events growing = events_of("runs/first", 1, 0);
    cr_assert_eq(events_count(&growing, "Loss/train"), 300, "not there before the end");
    free(growing.event);
    MUST(duet_events_scalar(events, "last", -0.0, INT64_MAX));
    MUST(duet_events_close(&events));
    cr_assert_null(events);

    struct events all = events_of("runs/first", 1, 0);
    cr_assert_eq(all.rest, 0);
    for (int step = 0; step < 300; step++) {
        const struct event *e = event_of(&all, "Loss/train", step);
        cr_assert(e->value == (float)(1. / (step + 1)) && e->step == step);
    }
    cr_assert_eq(events_count(&all, "Accuracy"), 3);
    cr_assert_eq(event_of(&all, "Accuracy", 2)->value, 100);
    cr_assert(event_of(&all, "last", 0)->step == INT64_MAX);
    free(all.event);
}

Test(api_events, a_file_without_numbers_is_removed, .timeout = 30, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    duet_events *events;
    MUST(duet_events_open(&events, "runs/empty"));
    MUST(duet_events_close(&events));
    cr_assert(access("runs", F_OK), "the folders are left");
}

Test(api_events, what_is_refused, .timeout = 30, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    duet_events *events = (duet_events *)&events;
    char tag[202];
    memset(tag, 'x', 201), tag[201] = 0;
    MUST_FAIL(duet_events_open(&events, "/proc/none"), DUET_FAILED, "/proc/none");
    cr_assert_null(events);
    MUST(duet_events_scalar(NULL, "x", 1, 0)); /* a rank that writes nothing */
    MUST(duet_events_close(NULL));
    MUST(duet_events_open(&events, "runs"));
    MUST_FAIL(duet_events_scalar(events, tag, 1, 0), DUET_USAGE, "1 to 200 bytes");
    MUST_FAIL(duet_events_scalar(events, "x", 1, -1), DUET_USAGE, "steps count from 0");
    MUST(duet_events_close(&events));
}
