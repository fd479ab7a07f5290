/* Strips of still pictures, as a comic has them: what each device's data holds before a collective
 * and after each hop. A row is a device, a column a chunk of the data; a cell has a stripe for each
 * device whose term it holds, and is full where the sum is complete. Arrows say who sends a chunk
 * to whom. */
#ifndef REPORT_PICTURES_STRIP_H
#define REPORT_PICTURES_STRIP_H

#include "allreduce/hops.h"
#include "report/pictures/picture.h"

/* What a strip can show; of more the page has the played back form alone. */
enum { STRIP_FRAMES = 16, STRIP_RANKS = 8, STRIP_CHUNKS = 24 };

struct strip {
    const struct hops *hops;
    const struct hops_state *state;
    double cell, row; /* width and height of a cell */
};

/* The strip with cells that suit the number of chunks and hops. */
struct strip strip_of(const struct picture *p, const struct hops *hops,
                      const struct hops_state *state);
double strip_frame_width(const struct picture *p, const struct strip *s);
double strip_frame_height(const struct picture *p, const struct strip *s);

/* One picture: the state as it is now, after hop `hop`, with a headline. */
void strip_frame(struct picture *p, const struct strip *s, int hop, const char *head, double x,
                 double y);

/* The key: "term of rank 0", ... As picture_key. */
double strip_key(struct picture *p, double y, int n, int draw);

#endif
