/* Prints the errors and warnings of every subcommand on standard error (cli/commands.h). Only this
 * file turns an error code into an exit status. */
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/advice.h"
#include "base/error.h"
#include "base/program_name.h"
#include "base/text/text.h"
#include "cli/commands.h"
#include "cli/options/help.h"
#include "comm/environment.h"

/* On a terminal the error may begin in an unfinished line of progress, which a killed job could not
 * end. */
static void clear_line(void) {
    struct winsize size;
    if (!isatty(STDERR_FILENO) || ioctl(STDERR_FILENO, TIOCGWINSZ, &size) || size.ws_col < 2)
        return;
    fprintf(stderr, "\r%*s\r", size.ws_col - 1, "");
}

int report_error(int code) {
    /* All ranks under mpirun read one command line. The first on each machine reports what is wrong
     * with it, and mpirun then ends the others. A rank that is still running has its own error. */
    if (code == ERR_USAGE && environment_is_of_a_later_rank()) sleep(10);
    setvbuf(stderr, NULL, _IOLBF, 0); /* writes whole lines, since the ranks share the file */
    if (code && code != ERR_READER) {
        clear_line();
        fprintf(stderr, "%s: ", program_name());
        say(stderr, error_with_options());
        fputc('\n', stderr);
    }
    return error_exit_status(code);
}

static void warn_not_finite(const char *title, const struct run_record *run) {
    int count, first = record_not_finite(run, &count);
    if (first < 0) return;
    fprintf(stderr, "%s: %s%sloss: not finite since step %d, in %d of %d steps: %s\n",
            program_name(), title ? title : "", title ? ": " : "", first, count, run->steps,
            not_finite_advice(first));
}

void warn_of_run(const char *title, const struct run_record *run) {
    fflush(stdout); /* so that it precedes the lines on stderr */
    warn_not_finite(title, run);
    if (!*run->unreduced) return;
    struct text text = {""};
    text_add(&text,
             "%s: warning: %s%sthe last step gave no gradient to some parameters, so DDP has not "
             "averaged their buckets, and another step would fail: give --find-unused-parameters "
             "(%s)\n",
             program_name(), title ? title : "", title ? ": " : "", run->unreduced);
    say(stderr, text.words);
}
