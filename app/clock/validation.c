/* Reads the published measurements: see validation.h. */
#include "clock/validation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embed.h"
#include "base/error.h"
#include "base/grow.h"

EMBED(published_text, "app/clock/published.txt");

static int index_of(const char *word, const char *const *words, int count) {
    int i = 0;
    while (i < count && strcmp(words[i], word))
        i++;
    return i;
}

/* 0: the line is not of this kind. */
static int read_row(const char *line, struct series *s) {
    static const char *const ways[SERIES_WAYS] = {"single",   "train", "dp",        "dp-forward",
                                                  "dp-train", "ddp",   "ddp-after", "fsdp"};
    static const char *const precisions[] = {"default", "fp32", "tf32", "amp"};
    char way[16], precision[16], *tokens;
    int at = 0, read = 0, k = 0;
    *s = (struct series){.way = SERIES_WAYS};
    if (sscanf(line, "%3s %15s %23s %23s %15s%n", s->table, precision, s->machine, s->model, way,
               &at) != 5)
        return 0;
    s->way = (enum series_way)index_of(way, ways, SERIES_WAYS);
    s->precision = (enum clock_precision)index_of(precision, precisions, CLOCK_AMP + 1);
    if ((tokens = strchr(s->model, ':'))) *tokens = ' ';
    for (struct series_point *p = s->point; k < SERIES_POINTS; k++, p++, at += read)
        if (sscanf(line + at, " %dx%d=%lf%c%n", &p->gpus, &p->batch, &p->ms, &p->role, &read) != 4)
            break;
    return k && s->way < SERIES_WAYS && s->precision <= CLOCK_AMP && line[at] == '\n';
}

int series_read(struct series **list) {
    char line[256];
    int count = 0, room = 0, number = 0, code = OK;
    FILE *file = fmemopen((char *)published_text, strlen(published_text), "r");
    *list = NULL;
    if (!file) return fail(ERR_MEMORY, "published rows: out of host memory");
    while (!code && fgets(line, sizeof line, file)) {
        number++;
        if (*line == '#' || *line == '\n') continue;
        code = list_grow("published rows", list, count + 1, &room, sizeof **list);
        if (code) break;
        if (!read_row(line, &(*list)[count++]))
            code = fail(ERR_FAILED, "published rows: line %d cannot be read", number);
        (*list)[count] = (struct series){.table = ""};
    }
    fclose(file);
    return code;
}
