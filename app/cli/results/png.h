/* A PNG next to a picture in SVG, for programs that cannot read SVG. */
#ifndef CLI_RESULTS_PNG_H
#define CLI_RESULTS_PNG_H

#define PNG_MISSING "no PNG next to it: rsvg-convert is not installed (Debian: librsvg2-bin)"

/* Makes NAME.png of NAME.svg by librsvg's program, 1920 pixels wide. *is_missing: 1: there is no
 * such program, and there is only the SVG. ERR_FAILED: it could not write the PNG. */
int png_beside(const char *svg, int *is_missing);

#endif
