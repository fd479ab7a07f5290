/* Wraps text for people; see text.h. */
#include "base/text/text.h"

#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/text/plain.h"

int text_width(FILE *file) {
    struct winsize size;
    int fd = fileno(file);
    if (fd < 0 || !isatty(fd) || ioctl(fd, TIOCGWINSZ, &size) || !size.ws_col) return TEXT_USUAL;
    return size.ws_col < TEXT_NARROWEST ? TEXT_NARROWEST
           : size.ws_col > TEXT_WIDEST  ? TEXT_WIDEST
                                        : size.ws_col;
}

void text_wrap(FILE *file, int width, int indent, int hanging, const char *text) {
    int column = fprintf(file, "%*s", indent, ""), words = 0;
    while (*text) {
        char word[sizeof(struct text)];
        size_t bytes = strcspn(text, " ");
        int length = (int)strlen(text_plain(word, sizeof word, text, bytes));
        if (words && column + 1 + length > width) {
            column = fprintf(file, "\n%*s", hanging, "") - 1;
            words = 0;
        }
        column += fprintf(file, "%s%s", words++ ? " " : "", word);
        text += bytes + (text[bytes] == ' ');
    }
    fprintf(file, "\n");
}

void text_say(FILE *file, int width, int indent, int hanging, const char *format, ...) {
    struct text text;
    va_list list;
    va_start(list, format);
    vsnprintf(text.words, sizeof text.words, format, list);
    va_end(list);
    text_wrap(file, width, indent, hanging, text.words);
}

void text_append(char *text, size_t bytes, const char *format, ...) {
    size_t used = strlen(text);
    va_list list;
    va_start(list, format);
    vsnprintf(text + used, bytes - used, format, list);
    va_end(list);
}

const char *text_sizes(char *text, size_t bytes, int rank, const int *sizes) {
    *text = 0;
    for (int i = 0; i < rank; i++)
        text_append(text, bytes, i ? ", %d" : "%d", sizes[i]);
    return text;
}
