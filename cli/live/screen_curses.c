/* The terminal by ncurses: see screen.h. */
#include "cli/live/screen.h"

#define NCURSES_WIDECHAR 1
#include <curses.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <term.h>
#include <unistd.h>
#include <wchar.h>

#undef columns /* <term.h> defines every capability of terminals as a word */
#undef lines

struct screen {
    SCREEN *curses;
    FILE *out, *in;
    int colours;
    short pair[STYLES]; /* the pair of colours of a style; 0: those of the terminal */
};

int screen_is_built_in(void) {
    return 1;
}

/* ncurses installs handlers for signals that nobody handles. They would end this process where it
 * stands, or draw in the middle of other drawing; cli/live/live.c takes these signals in order. */
static SCREEN *open_without_handlers(FILE *out, FILE *in) {
    static const int signals[] = {SIGINT, SIGTERM, SIGTSTP, SIGWINCH};
    enum { COUNT = sizeof signals / sizeof *signals };
    struct sigaction before[COUNT];
    for (int i = 0; i < COUNT; i++)
        sigaction(signals[i], NULL, &before[i]);
    SCREEN *curses = newterm(NULL, out, in);
    for (int i = 0; i < COUNT; i++)
        sigaction(signals[i], &before[i], NULL);
    return curses;
}

/* 1: this terminal is known, and its cursor can be moved. Asked first, since newterm keeps memory
 * where it gives up. */
static int can_draw(int fd) {
    int error;
    if (setupterm(NULL, fd, &error) != OK) return 0;
    const char *move = tigetstr("cup");
    int can = move && move != (char *)-1;
    del_curterm(cur_term);
    return can;
}

static void start_colours(struct screen *s) {
    static const short of_style[STYLES] = {
        [STYLE_BAR] = COLOR_GREEN, [STYLE_LOSS] = COLOR_CYAN, [STYLE_ACCURACY] = COLOR_MAGENTA};
    s->colours = has_colors() && start_color() == OK && use_default_colors() == OK;
    for (short style = 0; s->colours && style < STYLES; style++)
        if (of_style[style] && init_pair(style, of_style[style], -1) != ERR) s->pair[style] = style;
}

struct screen *screen_open(int fd, int colours) {
    if (!can_draw(fd)) return NULL;
    struct screen *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    int out = dup(fd), in = dup(fd);
    s->out = out < 0 ? NULL : fdopen(out, "w");
    s->in = in < 0 ? NULL : fdopen(in, "r");
    if (s->out && s->in) s->curses = open_without_handlers(s->out, s->in);
    if (!s->curses) {
        if (s->out) fclose(s->out);
        if (s->in) fclose(s->in);
        free(s);
        return NULL;
    }
    cbreak(); /* Ctrl-C and Ctrl-Z are signals as before */
    noecho();
    curs_set(0);
    leaveok(stdscr, TRUE);
    if (colours) start_colours(s);
    return s;
}

void screen_leave(struct screen *s) {
    if (!s || isendwin()) return;
    curs_set(1);
    endwin();
}

void screen_return(struct screen *s) {
    reset_prog_mode();
    curs_set(0);
    clearok(curscr, TRUE);
    (void)s;
}

void screen_close(struct screen *s, int ours) {
    if (!s) return;
    if (ours) screen_leave(s);
    delscreen(s->curses);
    fclose(s->out);
    fclose(s->in);
    free(s);
}

void screen_size(struct screen *s, int *rows, int *columns) {
    struct winsize size;
    if (!ioctl(fileno(s->out), TIOCGWINSZ, &size) && size.ws_row && size.ws_col &&
        (size.ws_row != LINES || size.ws_col != COLS)) {
        resizeterm(size.ws_row, size.ws_col);
        clearok(curscr, TRUE); /* terminals differ in what they make of the old picture */
    }
    *rows = LINES;
    *columns = COLS;
}

static attr_t attributes_of(enum style style) {
    return style == STYLE_HEAD ? A_BOLD : style == STYLE_FAINT ? A_DIM : A_NORMAL;
}

void screen_show(struct screen *s, const struct canvas *c) {
    int rows = c->rows < LINES ? c->rows : LINES, columns = c->columns < COLS ? c->columns : COLS;
    for (int row = 0; row < rows; row++) {
        for (int column = 0; column < columns; column++) {
            const struct cell *cell = &c->cell[(size_t)row * (size_t)c->columns + (size_t)column];
            wchar_t text[2] = {(wchar_t)cell->c, 0};
            cchar_t shown;
            /* without colours the terminal gets no attributes but bold */
            attr_t attributes = s->colours || cell->style == STYLE_HEAD
                                    ? attributes_of((enum style)cell->style)
                                    : A_NORMAL;
            setcchar(&shown, text, attributes, s->pair[cell->style], NULL);
            mvadd_wch(row, column, &shown);
        }
    }
    refresh();
}
