/* Writes a PNG next to an SVG picture, for programs that cannot read SVG. */
#ifndef CLI_RESULTS_PNG_H
#define CLI_RESULTS_PNG_H

#define PNG_MISSING "no PNG next to it: rsvg-convert is not installed (Debian: librsvg2-bin)"

/* Makes NAME.png from NAME.svg with librsvg's program, 1920 pixels wide. *is_missing becomes 1 if
 * that program is not installed. ERR_FAILED: it could not write the PNG. */
int png_beside(const char *svg, int *is_missing);

#endif
