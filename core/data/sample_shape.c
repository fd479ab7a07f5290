/* Writes and reads shapes of samples in the form that users write. */
#include "data/sample_shape.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text/parse.h"

enum { MOST_TEXT = 32 }; /* characters of a shape that a user may give */

int sample_shape_fits(const struct sample_shape *s) {
    return s->channels >= 1 && s->height >= 1 && s->width >= 1 &&
           (double)s->channels * s->height * s->width <= SAMPLE_NUMBERS;
}

const char *sample_shape_text(const struct sample_shape *s, char text[SAMPLE_SHAPE_BYTES]) {
    if (s->height == 1 && s->width == 1)
        snprintf(text, SAMPLE_SHAPE_BYTES, "%d", s->channels);
    else
        snprintf(text, SAMPLE_SHAPE_BYTES, "%dx%dx%d", s->channels, s->height, s->width);
    return text;
}

int sample_shape_parse(const char *what, const char *text, struct sample_shape *shape) {
    char list[MOST_TEXT + 1];
    int64_t sides[3] = {0};
    int count = 0;
    if (strlen(text) <= MOST_TEXT && !strchr(text, ',')) {
        for (char *c = strcpy(list, text); *c; c++)
            if (*c == 'x' || *c == 'X') *c = ',';
        if (parse_int_list(what, list, 1, SAMPLE_NUMBERS, sides, 3, &count)) count = 0;
    }
    struct sample_shape s = {(int)sides[0], 1, 1};
    if (count == 3) s.height = (int)sides[1], s.width = (int)sides[2];
    if ((count != 1 && count != 3) || !sample_shape_fits(&s))
        return fail(ERR_USAGE,
                    "%s: '%.40s': give CxHxW, such as 3x32x32, or K for vectors, such as 10; 1 "
                    "to %d numbers in all",
                    what, text, SAMPLE_NUMBERS);
    *shape = s;
    return OK;
}
