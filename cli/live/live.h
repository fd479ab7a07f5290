/* --live: a dashboard in the terminal while a command trains.
 *
 * A thread of the launcher reads the live page (trace/live_page.h) a few times a second and draws
 * it (report/live/live_view.h, cli/live/screen.h) on the terminal of standard error, since it is
 * progress. So neither the ranks nor the loop that serves them do anything for it.
 *
 * While the terminal is taken, nothing may be printed on it: what this program and its ranks write
 * to the terminal goes to a memory file, and is printed once the terminal is given back, below a
 * last picture of the dashboard.
 *
 * Where there is no terminal, or TERM is dumb, or the window has fewer than 60 columns, or another
 * process group has the terminal, there is no dashboard and the command prints its usual lines.
 *
 * The terminal is given back in every case but SIGKILL. SIGINT, SIGTERM, SIGHUP, SIGQUIT and
 * SIGPIPE are blocked meanwhile: a job takes the first three in order, as ever (comm/launch.h), and
 * otherwise they wait until the terminal is as it was. Ctrl-Z gives it back
 * before this process stops, and `fg` takes it again; in the background nothing is drawn. */
#ifndef CLI_LIVE_LIVE_H
#define CLI_LIVE_LIVE_H

#include "train/run.h"

struct live;

/* Does nothing unless config->live. Otherwise takes the terminal and sets config->live_fd; *out
 * stays NULL where it only prints lines: so it does in a build without ncurses, where the option is
 * refused before (cli/options/effects.h). ERR_MEMORY, ERR_FAILED. */
int live_screen_open(struct live **out, struct run_config *config);

/* Gives the terminal back and prints what was held back. Comes before anything that is to be seen,
 * as an error or the results. Keeps the error's text. NULL is fine; *live becomes NULL. */
void live_screen_close(struct live **live);

#endif
