/* A terminal that is drawn on as a whole. The only two files that know how are screen_curses.c,
 * which leaves it to ncurses, and screen_absent.c for builds without that library.
 *
 * Why a library: ncurses is on every Debian (bash needs its terminfo part), it knows which control
 * sequences each terminal takes, sends only what has changed since the last picture, and puts the
 * terminal back as it was. What it would do on its own is left out: it handles no signal here and
 * reads no key. */
#ifndef CLI_LIVE_SCREEN_H
#define CLI_LIVE_SCREEN_H

#include "report/live/canvas.h"

struct screen;

/* 1: this build can draw. */
int screen_is_built_in(void);

/* Takes over the terminal `fd`, of which it keeps a descriptor of its own: another screen, where
 * the terminal has one, no cursor, no echo. NULL: it cannot be drawn on (TERM is dumb, unset or
 * not known). colours 0: none are used. */
struct screen *screen_open(int fd, int colours);
/* Gives it back as it was, unless another process group has it now (ours 0), whose modes these are
 * then. NULL is fine. */
void screen_close(struct screen *screen, int ours);

/* Gives the terminal back for a while, and takes it again: around a stop of this process. Nothing
 * may be drawn in between. */
void screen_leave(struct screen *screen);
void screen_return(struct screen *screen);

/* The size now, which changes with the window. */
void screen_size(struct screen *screen, int *rows, int *columns);
/* Shows the canvas, whose size is that of screen_size. */
void screen_show(struct screen *screen, const struct canvas *canvas);

#endif
