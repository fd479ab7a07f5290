/* The runs that pictures and pages show side by side, and the files of --pictures.
 *
 *     svg_*.c      one picture each; draw.h names them
 *     picture.c    rectangles, lines and text as SVG; palette.c the colours
 *     window.c     the step that the timeline shows; the exposed time of buckets */
#ifndef REPORT_PICTURES_RUNS_H
#define REPORT_PICTURES_RUNS_H

#include <stdio.h>

#include "base/files/atomic_file.h"
#include "report/origin.h"
#include "trace/record.h"

enum { PAGE_RUNS = 4 };

/* The outcome of the comparison with the single run. */
enum page_judgement { PAGE_NOT_JUDGED, PAGE_EQUAL, PAGE_WITHIN, PAGE_APART };

struct page_run {
    const char *title;            /* "DP, loss in forward" */
    const struct run_record *run; /* NULL: none, and `missing` says why */
    const char *missing;
    enum page_judgement judged;
    const char *verdict; /* the lines printed by the command; NULL: not judged */
};

struct page {
    const char *command;         /* "compare" */
    const struct origin *origin; /* command line, machine, versions */
    const char *stopped;         /* why the command ended early; NULL: it did not */
    int count;
    struct page_run run[PAGE_RUNS]; /* in the order of `runs` in the JSON */
};

/* A folder of pictures, and the picture that is being written. */
struct pictures {
    const char *folder; /* NULL: none are wanted */
    struct atomic_file file;
    int made;          /* 1: it was created */
    int count, no_png; /* pictures written; 1: as SVG only */
};
#define PNG_MISSING "no PNG next to it: rsvg-convert is not installed (Debian: librsvg2-bin)"

/* Creates the folder if it is missing, and tests that it can be written to. */
int pictures_try(struct pictures *p);

/* A picture is drawn between them, with this code. ERR_FAILED: it cannot be written. */
int picture_begin(struct pictures *p, const char *name, FILE **file);
int picture_end(struct pictures *p, int code);

/* Writes the pictures, up to the first that fails. */
int page_pictures(const struct page *page, struct pictures *pictures);

#endif
