/* How fast a link between two devices is: what is asked for with --link. */
#ifndef TRACE_LINK_H
#define TRACE_LINK_H

#ifdef __cplusplus
extern "C" {
#endif

struct link_speed {
    char name[24]; /* "nvlink3"; "": not given */
    double gbs;    /* 10^9 bytes per second, in each direction */
    double us;     /* microseconds before the first byte of a transfer arrives */
};

/* The links that have a name, the slowest first; NULL beyond the last. */
const struct link_speed *link_known(int i);

/* Reads a name, or "GB/s,us" as "12,5". ERR_USAGE; `what` begins the error text. */
int link_parse(const char *what, const char *text, struct link_speed *link);

#ifdef __cplusplus
}
#endif
#endif
