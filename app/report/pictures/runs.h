/* The runs side by side that pictures and pages show, and the files of --pictures.
 *
 *     svg_*.c      a picture each; draw.h names them
 *     picture.c    rectangles, lines and text as SVG; palette.c the colours
 *     window.c     which steps the timeline shows; how much of a bucket's time is exposed */
#ifndef REPORT_PICTURES_RUNS_H
#define REPORT_PICTURES_RUNS_H

#include <stdio.h>

#include "report/origin.h"
#include "trace/record.h"

enum { PAGE_RUNS = 4 };

/* The outcome of the comparison with the single run. */
enum page_judgement { PAGE_NOT_JUDGED, PAGE_EQUAL, PAGE_WITHIN, PAGE_APART };

struct page_run {
    const char *title;            /* "DP, loss in forward" */
    const struct run_record *run; /* NULL: there is none, and `missing` says why */
    const char *missing;
    enum page_judgement judged;
    const char *verdict; /* the lines that the command prints; NULL: not judged */
};

struct page {
    const char *command;         /* "compare" */
    const struct origin *origin; /* command line, machine, versions */
    const char *stopped;         /* why the command ended early; NULL: it did not */
    int count;
    struct page_run run[PAGE_RUNS]; /* in the order of `runs` in the JSON */
};

/* Writes the pictures, each through open(context, "memory.svg", &file) and close(context), up to
 * the first that fails. */
struct picture_files {
    int (*open)(void *context, const char *name, FILE **file);
    int (*close)(void *context);
    void *context;
};
enum { PICTURE_NAME = 40 };
int page_pictures(const struct page *page, const struct picture_files *files);

#endif
