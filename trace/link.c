/* The links that have a name. Their figures are those with which NCCL chooses its algorithms, so
 * they are what a transfer reaches, not what a data sheet says:
 *
 *     GB/s    src/graph/topo.h: PCIe 3 x16 12 (so PCIe 4 24); of each NVLink V100 20, A100 20,
 *             H100 20.6, and these GPUs have 6, 12 and 18 of them
 *     us      src/graph/tuning.cc: one hop of a ring, protocol Simple: PCI 5.7, NVLink 3.4
 *
 * (NCCL 2.30 at 5067397c.) Data sheets say 15.75 and 31.5 for PCIe, 150, 300 and 450 for NVLink;
 * transfers between two GPUs were measured at 274 with NVLink 3 and at 376 with NVLink 4. */
#include "trace/link.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/nearest.h"
#include "base/parse.h"

static const struct link_speed known[] = {{"pcie3", 12, 5.7},
                                          {"pcie4", 24, 5.7},
                                          {"nvlink2", 120, 3.4},
                                          {"nvlink3", 240, 3.4},
                                          {"nvlink4", 370.8, 3.4}};
enum { KNOWN = sizeof known / sizeof *known };
static const double SLOWEST_GBS = 1e-6, FASTEST_GBS = 1e6, LONGEST_US = 1e9;

const struct link_speed *link_known(int i) {
    return i < KNOWN ? &known[i] : NULL;
}

int link_parse(const char *what, const char *text, struct link_speed *link) {
    const char *words[KNOWN], *comma = strchr(text, ',');
    char first[32];
    for (int i = 0; i < KNOWN; i++) {
        words[i] = known[i].name;
        if (strcmp(text, known[i].name)) continue;
        *link = known[i];
        return OK;
    }
    if (!comma || comma - text >= (int)sizeof first || strlen(text) >= sizeof link->name)
        return strpbrk(text, "0123456789.") == text
                   ? fail(ERR_USAGE,
                          "%s: '%.40s': give GB/s and microseconds with a comma between, as 12,5",
                          what, text)
                   : unknown_value(what, text, words, KNOWN);
    snprintf(first, sizeof first, "%.*s", (int)(comma - text), text);
    snprintf(link->name, sizeof link->name, "%s", text);
    CHECK(parse_number(what, first, SLOWEST_GBS, FASTEST_GBS, &link->gbs));
    return parse_number(what, comma + 1, 0, LONGEST_US, &link->us);
}
