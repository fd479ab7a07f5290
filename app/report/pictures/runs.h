/* The runs that pictures and pages show side by side, and the files of --pictures.
 *
 *     svg_*.c      one picture each; draw.h names them
 *     picture.c    rectangles, lines and text as SVG; palette.c the colours
 *     window.c     the step that the timeline shows; the exposed time of buckets */
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

/* Writes the pictures, up to the first that fails. Each file is opened with open(context,
 * "memory.svg", &file) and closed with close(context). */
struct picture_files {
    int (*open)(void *context, const char *name, FILE **file);
    int (*close)(void *context);
    void *context;
};
enum { PICTURE_NAME = 40 };
int page_pictures(const struct page *page, const struct picture_files *files);

#endif
