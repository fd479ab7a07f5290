/* A collective by itself, without a run: the picture and the page of `duet collective`. */
#ifndef REPORT_PAGE_DRAWING_PAGE_H
#define REPORT_PAGE_DRAWING_PAGE_H

#include <stdio.h>

#include "report/collective/collective.h"
#include "report/pictures/picture.h"

/* The picture of its hops in the form that *p has. ERR_FAILED, ERR_MEMORY. */
int drawing_picture(struct picture *p, const struct drawing *drawing);

/* A page of one file with that picture, which can be played, and all moves. As drawing_picture. */
int drawing_page(FILE *file, const struct drawing *drawing);

#endif
