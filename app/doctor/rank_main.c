/* The program of a check's rank: duet doctor-rank TASK_FD. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/program_name.h"
#include "doctor/ranks.h"

int doctor_rank_main(int argc, char **argv) {
    struct rank_task *task = rank_task_map(argc == 1 ? atoi(argv[0]) : -1);
    int reported = 0;
    int code = task ? rank_run(task, &reported)
                    : fail(ERR_USAGE, "doctor-rank: is started by duet itself: use duet doctor");
    if (code && !reported) fprintf(stderr, "%s: %s\n", program_name(), error_message());
    return error_exit_status(code);
}
