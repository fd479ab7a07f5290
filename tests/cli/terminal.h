/* A small terminal: takes the bytes that a command sends and keeps what stands on the screen. It
 * knows the control sequences that ncurses uses for TERM=xterm and vt100, and fails the test on any
 * other, so that nothing is passed over in silence. */
#ifndef TESTS_CLI_TERMINAL_H
#define TESTS_CLI_TERMINAL_H

#include <stdint.h>

#include "tests/cli/run.h"

enum { TERM_ROWS = 60, TERM_COLUMNS = 240 };

struct terminal_screen {
    uint32_t cell[TERM_ROWS][TERM_COLUMNS];
    int row, column, saved_row, saved_column;
    int top, bottom; /* the rows that scroll; bottom 0: down to the last */
};

struct terminal {
    int rows, columns;
    struct terminal_screen screen[2]; /* [1]: the alternate one */
    int alternate, hidden_cursor;
    int times_taken; /* how often the alternate screen was entered */
    int coloured;    /* 1: a colour has been asked for */
    int escapes;     /* control sequences so far */
    uint32_t last;   /* character, for "repeat" */
    size_t used;     /* bytes taken so far */
    /* What stood on the alternate screen when it was left last. */
    struct terminal_screen left;
};

static inline void term_erase(struct terminal_screen *s, int row, int from, int to) {
    for (int column = from; column < to && column < TERM_COLUMNS; column++)
        s->cell[row][column] = ' ';
}

static inline void term_init(struct terminal *t, int rows, int columns) {
    memset(t, 0, sizeof *t);
    t->rows = rows;
    t->columns = columns;
    for (int i = 0; i < 2; i++)
        for (int row = 0; row < TERM_ROWS; row++)
            term_erase(&t->screen[i], row, 0, TERM_COLUMNS);
}

static inline int term_bottom(const struct terminal *t, const struct terminal_screen *s) {
    return s->bottom && s->bottom < t->rows ? s->bottom : t->rows - 1;
}

/* Moves the rows from `top` to the last that scrolls up by n, or down by -n. */
static inline void term_scroll(struct terminal *t, struct terminal_screen *s, int top, int n) {
    int bottom = term_bottom(t, s), count = bottom - top + 1, by = n < 0 ? -n : n;
    if (count < 1) return;
    if (by > count) by = count;
    size_t bytes = sizeof s->cell[0] * (size_t)(count - by);
    if (n > 0)
        memmove(s->cell[top], s->cell[top + by], bytes);
    else
        memmove(s->cell[top + by], s->cell[top], bytes);
    for (int i = 0; i < by; i++)
        term_erase(s, n > 0 ? bottom - i : top + i, 0, TERM_COLUMNS);
}

static inline void term_newline(struct terminal *t, struct terminal_screen *s) {
    if (s->row == term_bottom(t, s))
        term_scroll(t, s, s->top, 1);
    else if (s->row + 1 < t->rows)
        s->row++;
}

/* Of two letters: ESC and one more. */
static inline void term_escape(struct terminal *t, struct terminal_screen *s, char letter) {
    if (letter == '7') s->saved_row = s->row, s->saved_column = s->column;
    if (letter == '8') s->row = s->saved_row, s->column = s->saved_column;
    if (letter == 'D') term_newline(t, s);
    if (letter == 'M' && s->row == s->top)
        term_scroll(t, s, s->top, -1);
    else if (letter == 'M' && s->row)
        s->row--;
    cr_assert(strchr("78DM=>", letter), "unknown control sequence: ESC %c", letter);
}

/* Inserts n blanks at the cursor, or takes away -n characters there. */
static inline void term_shift(struct terminal *t, struct terminal_screen *s, int n) {
    uint32_t *row = s->cell[s->row];
    int by = n < 0 ? -n : n, rest = t->columns - s->column - by;
    if (rest < 0) rest = 0, by = t->columns - s->column;
    if (n > 0)
        memmove(row + s->column + by, row + s->column, sizeof *row * (size_t)rest);
    else
        memmove(row + s->column, row + s->column + by, sizeof *row * (size_t)rest);
    term_erase(s, s->row, n > 0 ? s->column : s->column + rest,
               n > 0 ? s->column + by : t->columns);
}

/* A character in the last column leaves the cursor behind it; the next one wraps. */
static inline void term_put(struct terminal *t, struct terminal_screen *s, uint32_t c) {
    if (s->column >= t->columns) {
        s->column = 0;
        term_newline(t, s);
    }
    s->cell[s->row][s->column++] = t->last = c;
}

static inline void term_clear(struct terminal *t, struct terminal_screen *s, int how) {
    int first = how == 0 ? s->row + 1 : 0, end = how == 1 ? s->row : t->rows;
    for (int row = first; row < end; row++)
        term_erase(s, row, 0, TERM_COLUMNS);
    if (how == 0) term_erase(s, s->row, s->column, TERM_COLUMNS);
    if (how == 1) term_erase(s, s->row, 0, s->column + 1);
}

static inline void term_mode(struct terminal *t, int mode, int on) {
    if (mode == 25) t->hidden_cursor = !on;
    if (mode != 1049) return; /* 1, 7, 12: keys and wrapping, which change no cell */
    if (!on && t->alternate) t->left = t->screen[1];
    if (on && !t->alternate) t->times_taken++;
    t->alternate = on;
}

static inline int term_limit(int value, int end) {
    return value < 0 ? 0 : value >= end ? end - 1 : value;
}

/* CSI: ESC [ ? numbers letter. Returns the bytes that it has. */
static inline size_t term_csi(struct terminal *t, const char *text) {
    struct terminal_screen *s = &t->screen[t->alternate];
    int number[16] = {0}, count = 0, private = 0;
    const char *p = text + 2;
    if (*p == '?') private = 1, p++;
    for (;; p++) {
        while (*p >= '0' && *p <= '9')
            number[count] = 10 * number[count] + (*p++ - '0');
        count++;
        if (*p != ';' || count == 16) break;
    }
    int n = number[0] ? number[0] : 1;
    switch (*p) {
    case 'H':
    case 'f':
        s->row = term_limit(n - 1, t->rows);
        s->column = term_limit(count > 1 && number[1] ? number[1] - 1 : 0, t->columns);
        break;
    case 'G': s->column = term_limit(n - 1, t->columns); break;
    case 'd': s->row = term_limit(n - 1, t->rows); break;
    case 'A': s->row = term_limit(s->row - n, t->rows); break;
    case 'B': s->row = term_limit(s->row + n, t->rows); break;
    case 'C': s->column = term_limit(s->column + n, t->columns); break;
    case 'D': s->column = term_limit(s->column - n, t->columns); break;
    case 'X': term_erase(s, s->row, s->column, s->column + n); break;
    case 'K':
        term_erase(s, s->row, number[0] ? 0 : s->column,
                   number[0] == 1 ? s->column + 1 : TERM_COLUMNS);
        break;
    case 'J': term_clear(t, s, number[0]); break;
    case 'b':
        for (int i = 0; i < n; i++)
            term_put(t, s, t->last);
        break;
    case 'm':
        for (int i = 0; i < count; i++)
            t->coloured |= (number[i] >= 30 && number[i] <= 38) ||
                           (number[i] >= 40 && number[i] <= 48) || number[i] >= 90;
        break;
    case 'h':
    case 'l':
        for (int i = 0; private && i < count; i++)
            term_mode(t, number[i], *p == 'h');
        break;
    case 'r':
        s->top = term_limit(n - 1, t->rows);
        s->bottom = count > 1 && number[1] ? term_limit(number[1] - 1, t->rows) : 0;
        s->row = s->column = 0;
        break;
    case 'S': term_scroll(t, s, s->top, n); break;
    case 'T': term_scroll(t, s, s->top, -n); break;
    case 'L': term_scroll(t, s, s->row, -n); break;
    case 'M': term_scroll(t, s, s->row, n); break;
    case '@': term_shift(t, s, n); break;
    case 'P': term_shift(t, s, -n); break;
    case 't': break; /* the title of the window is kept and put back */
    default: cr_assert_fail("unknown control sequence: ESC%.20s", text + 1);
    }
    t->escapes++;
    return (size_t)(p - text) + 1;
}

/* Takes one character or control sequence of `n` bytes at most; 0: it is not whole yet. */
static inline size_t term_take(struct terminal *t, const char *text, size_t n) {
    struct terminal_screen *s = &t->screen[t->alternate];
    unsigned char c = (unsigned char)*text;
    if (c == 033) {
        size_t at = 1;
        if (n < 2) return 0;
        if (text[1] != '[') {
            t->escapes++;
            if (strchr("()", text[1])) return n < 3 ? 0 : 3; /* a set of characters */
            term_escape(t, s, text[1]);
            return 2;
        }
        for (at = 2; at < n && !((unsigned char)text[at] >= 0x40); at++)
            continue;
        return at == n ? 0 : term_csi(t, text);
    }
    if (c == '\r') s->column = 0;
    if (c == '\b' && s->column) s->column--;
    if (c == '\n') term_newline(t, s);
    if (c == '\t') s->column = term_limit((s->column / 8 + 1) * 8, t->columns);
    if (c < ' ') return 1;
    size_t bytes = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (n < bytes) return 0;
    uint32_t code = bytes == 1 ? c : c & (0xffU >> (bytes + 1));
    for (size_t i = 1; i < bytes; i++)
        code = code << 6 | ((unsigned char)text[i] & 0x3f);
    term_put(t, s, code);
    return bytes;
}

/* Takes all that the command has shown since the last call. */
static inline void term_listen(struct terminal *t, const struct cli *c) {
    size_t n;
    while (t->used < c->seen && (n = term_take(t, c->shown + t->used, c->seen - t->used)))
        t->used += n;
}

/* The screen as text, blanks at the ends of lines left out: free() it. What is not ASCII becomes
 * '~'. */
static inline char *term_text(const struct terminal *t, const struct terminal_screen *s) {
    char *text = malloc((size_t)t->rows * ((size_t)t->columns + 1) + 1), *to = text;
    for (int row = 0; row < t->rows; row++) {
        for (int column = 0; column < t->columns; column++)
            *to++ = s->cell[row][column] < 0x7f ? (char)s->cell[row][column] : '~';
        while (to > text && to[-1] == ' ')
            to--;
        *to++ = '\n';
    }
    *to = 0;
    return text;
}

#endif
