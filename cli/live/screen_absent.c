/* No ncurses in this build: --live is refused (cli/options/effects.h). */
#include "cli/live/screen.h"

int screen_is_built_in(void) {
    return 0;
}

struct screen *screen_open(int fd, int colours) {
    (void)fd, (void)colours;
    return NULL;
}

void screen_close(struct screen *screen, int ours) {
    (void)screen, (void)ours;
}

void screen_leave(struct screen *screen) {
    (void)screen;
}

void screen_return(struct screen *screen) {
    (void)screen;
}

void screen_size(struct screen *screen, int *rows, int *columns) {
    (void)screen;
    *rows = *columns = 0;
}

void screen_show(struct screen *screen, const struct canvas *canvas) {
    (void)screen, (void)canvas;
}
