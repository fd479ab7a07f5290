/* Models a machine as a graph of GPUs, switches and the host, whose links transfers share.
 *
 * A link carries its rate in each direction, and the two directions do not affect each other. A
 * transfer takes the shortest path. Transfers that cross one link share it max-min fairly. The
 * rates of all transfers grow together until some links are full. The transfers across those links
 * keep their rates, and the others continue to grow. (The idea is SimGrid's; the algorithm is the
 * textbook's progressive filling.) */
#ifndef CLOCK_NET_H
#define CLOCK_NET_H

#include "base/limits.h"

enum { NET_NODES = MAX_DEVICES + 32, NET_LINKS = 256, NET_HOPS = 8 };

struct net_link {
    int a, b;       /* nodes: GPU g is g, switches begin at MAX_DEVICES, the host is NET_HOST */
    double gbs, us; /* bandwidth in each direction, and latency */
};
enum { NET_HOST = MAX_DEVICES };

struct net {
    int links;
    struct net_link link[NET_LINKS];
};

/* A path: links with a direction each, 2 * link + (1: from b to a). */
struct net_way {
    int hops, hop[NET_HOPS];
    double us; /* the sum of the links' latencies */
};

/* Finds the path with the fewest links; among equals, the one whose slowest link is fastest.
 * SCHEDULED_HOST stands for the host. Returns 0 if no path exists. */
int net_way(const struct net *net, int from, int to, struct net_way *way);

/* The rate of each of `count` transfers in bytes per nanosecond. */
void net_share(const struct net *net, const struct net_way *const *way, int count, double *rate);

/* The rate in GB/s at which `count` GPUs can pass data around a ring, all at the same time. */
double net_ring_gbs(const struct net *net, int count, double *us);

#endif
