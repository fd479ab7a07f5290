/* The page of --report: one HTML file with everything that a run, or several side by side, have to
 * show. It needs no network and no other file, and without JavaScript it shows all pictures and
 * numbers, all drawn in C; JavaScript stretches the timeline, says what is pointed at, plays the
 * frames of collectives one after another, and changes the theme.
 *
 * Every number on it comes from the run records, as those of --json do: measured by spans and
 * ledgers. What is computed from them says so. A number in a table carries the place where the JSON
 * has it (<data data-json="runs.2.per_device.0.memory_peak" value="...">).
 *
 *     page.c       the document: its sections in order
 *     words.c      the verdict in three sentences
 *     tables.c, tables_more.c   the numbers under each picture; command line, machine, versions
 *     collectives_section.c     what DP and DDP move, hop by hop
 *     svg_*.c      the pictures, which --pictures writes as files too
 *     window.c     which steps the timeline shows; how much of a bucket's time is exposed
 *     moves.c      what DP moves in a step; strip.c draws collectives as still pictures
 *     data.c       what JavaScript needs, as JSON
 *     page.css, page.js: as they are, inside the page */
#ifndef REPORT_PAGE_PAGE_H
#define REPORT_PAGE_PAGE_H

#include <stdio.h>

#include "report/origin.h"
#include "trace/record.h"

enum { PAGE_RUNS = 4 };

/* What became of a comparison with the single run. */
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

/* Writes the page. ERR_MEMORY; errors of the file stay in the file. */
int page_write(FILE *file, const struct page *page);

/* Writes the pictures, each through open(context, "memory.svg", &file) and close(context). One of
 * which either fails does not keep the others from being written; the error names the first. */
struct picture_files {
    int (*open)(void *context, const char *name, FILE **file);
    int (*close)(void *context);
    void *context;
};
enum { PAGE_PICTURES = 17, PICTURE_NAME = 40 };
int page_pictures(const struct page *page, const struct picture_files *files);

/* The names of all pictures that a page may have; returns their number. */
int page_picture_names(char names[PAGE_PICTURES][PICTURE_NAME]);

#endif
