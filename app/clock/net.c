/* Paths through a machine, and the max-min fair share: see net.h. */
#include "clock/net.h"

#include <string.h>

enum { NOWHERE = -1 };
static const double UNBOUND = 1e9; /* the rate of transfers that cross no link */

static int node_of(int device) {
    return device < 0 ? NET_HOST : device;
}

/* How far each node is from `from`, in links. A GPU does not forward other GPUs' data. */
static void measure(const struct net *net, int from, int *distance) {
    for (int n = 0; n < NET_NODES; n++)
        distance[n] = NOWHERE;
    distance[from] = 0;
    for (int d = 0, grew = 1; grew; d++) {
        grew = 0;
        for (int i = 0; i < 2 * net->links; i++) {
            const struct net_link *l = &net->link[i / 2];
            int at = i & 1 ? l->b : l->a, next = i & 1 ? l->a : l->b;
            if (distance[at] != d || distance[next] != NOWHERE) continue;
            if (at < MAX_DEVICES && at != from) continue;
            distance[next] = d + 1;
            grew = 1;
        }
    }
}

int net_way(const struct net *net, int from, int to, struct net_way *way) {
    int distance[NET_NODES], at = node_of(to);
    memset(way, 0, sizeof *way);
    measure(net, node_of(from), distance);
    if (distance[at] == NOWHERE || distance[at] > NET_HOPS) return 0;
    while (distance[at] > 0) {
        int best = NOWHERE;
        for (int i = 0; i < 2 * net->links; i++) {
            const struct net_link *l = &net->link[i / 2];
            int end = i & 1 ? l->a : l->b, start = i & 1 ? l->b : l->a;
            if (end != at || distance[start] != distance[at] - 1) continue;
            if (start < MAX_DEVICES && distance[start] > 0) continue;
            if (best == NOWHERE || l->gbs > net->link[best / 2].gbs) best = i;
        }
        way->hop[way->hops++] = best;
        way->us += net->link[best / 2].us;
        at = best & 1 ? net->link[best / 2].b : net->link[best / 2].a;
    }
    return 1;
}

/* Each round finds the links that give their transfers the lowest rate. These transfers keep that
 * rate, and it is subtracted from all links that they cross. */
void net_share(const struct net *net, const struct net_way *const *way, int count, double *rate) {
    double left[2 * NET_LINKS];
    int users[2 * NET_LINKS], full[2 * NET_LINKS], open = count;
    memset(users, 0, sizeof users);
    for (int i = 0; i < 2 * net->links; i++)
        left[i] = net->link[i / 2].gbs; /* GB/s are bytes per nanosecond */
    for (int f = 0; f < count; f++) {
        rate[f] = -1;
        for (int h = 0; h < way[f]->hops; h++)
            users[way[f]->hop[h]]++;
    }
    while (open > 0) {
        double share = UNBOUND;
        for (int i = 0; i < 2 * net->links; i++)
            if (users[i] && left[i] / users[i] < share) share = left[i] / users[i];
        for (int i = 0; i < 2 * net->links; i++)
            full[i] = users[i] && left[i] / users[i] <= share;
        for (int f = 0; f < count; f++) {
            int crosses = share == UNBOUND;
            for (int h = 0; h < way[f]->hops; h++)
                crosses |= full[way[f]->hop[h]];
            if (rate[f] >= 0 || !crosses) continue;
            rate[f] = share;
            open--;
            for (int h = 0; h < way[f]->hops; h++) {
                left[way[f]->hop[h]] -= share;
                users[way[f]->hop[h]]--;
            }
        }
    }
}

double net_ring_gbs(const struct net *net, int count, double *us) {
    struct net_way way[MAX_DEVICES];
    const struct net_way *ways[MAX_DEVICES] = {NULL};
    double rate[MAX_DEVICES], least = UNBOUND;
    *us = 0;
    for (int g = 0; g < count; g++) {
        ways[g] = &way[g];
        net_way(net, g, (g + 1) % count, &way[g]);
        if (way[g].us > *us) *us = way[g].us;
    }
    net_share(net, ways, count, rate);
    for (int g = 0; g < count; g++)
        if (rate[g] < least) least = rate[g];
    return least;
}
