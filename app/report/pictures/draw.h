/* The pictures of a page. Each function draws one picture in the form of *p, from the runs that
 * have a record; it sets p->height first. */
#ifndef REPORT_PICTURES_DRAW_H
#define REPORT_PICTURES_DRAW_H

#include "report/pictures/runs.h"
#include "report/pictures/picture.h"
#include "report/text.h"

/* index is that of a run in page->run, for pictures of one run; the others ignore it. */
typedef int draw_function(struct picture *p, const struct page *page, int index);

draw_function draw_timeline;   /* DP and DDP, a lane for each device, on one time axis */
draw_function draw_memory;     /* memory by cause and device, with the limit */
draw_function draw_phases;     /* time by phase and device */
draw_function draw_loss;       /* loss of all runs */
draw_function draw_accuracy;   /* accuracy of all runs that evaluated */
draw_function draw_links;      /* one run: what moved over each link, as arrows */
draw_function draw_collective; /* the run of DDP: its allreduce, hop by hop */

/* Return 1 if the picture would show anything. */
int has_timeline(const struct page *page);
int has_curves(const struct page *page, int accuracy);
int has_chart(const struct page *page, int accuracy); /* 1: there are at least two points */
int has_traffic(const struct page *page, int index);
int index_of_ddp(const struct page *page); /* index of DDP's run, if it has a record; -1: none */
int has_collective(const struct page *page);
int has_phases(const struct page *page);

/* The colour of a run. */
enum shade shade_of_run(const struct page *page, int index);
/* The run that the others are compared with, or the first with a record; NULL: no run has one. */
const struct run_record *first_run(const struct page *page);
int most_devices(const struct page *page);
/* A run whose devices share cores or GPUs (record_shared), or NULL. */
const struct run_record *run_that_shares(const struct page *page);

/* Draws an axis along the bottom, from x to x + width for 0 to `most`: marks, lines of `height`
 * above them, labels and the unit. */
enum axis_unit { AXIS_TIME, AXIS_BYTES };
void draw_axis(struct picture *p, double x, double y, double width, double height, double most,
               enum axis_unit unit);

/* A picture of times has a line at its foot if the times are modelled, "modelled: 4 x v100,
 * pc-pcie3", or if devices share cores. The first returns the line's height, which belongs to
 * p->height; the second draws the line after the height is set. */
double mark_height(const struct picture *p, const struct page *page);
void draw_mark(struct picture *p, const struct page *page);

/* Writes the label next to a row. */
void device_label(const struct picture *p, int device, char text[32]);
/* The same for devices first .. end - 1, which share a row because they are equal. */
void devices_label(const struct picture *p, int first, int end, char text[32]);
/* With many devices only every n-th label is shown; returns n. */
int label_every(int devices);

#endif
