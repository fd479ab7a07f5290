/* Hardware by name: GPUs, links, machines. The table is the file clock/hardware.txt. A user's file
 * (--machine FILE) may have the same lines:
 *
 *     gpu NAME fp32 T tensor T gbs X gib X       TFLOP/s, GB/s, GiB
 *     link NAME gbs X us X                       each direction; before the first byte
 *     machine NAME gpus N KEY X ...              the keys are below
 *     join gpu0-3 root0 LINK                     for the machine above: GPUs, named nodes, host
 *     # a comment, to the end of the line
 *
 * Some keys are optional: for a GPU half, reached and pcie; for a machine (see struct machine) like
 * NAME (it takes that machine's numbers and links), gpu NAME, network LINK, cards, links, sum,
 * exposed, pageable, forward, backward, replicate, hook, scale, error.
 */
#ifndef CLOCK_HARDWARE_H
#define CLOCK_HARDWARE_H

#include "clock/net.h"

enum { HARDWARE_NAME = 24 };

struct gpu_spec {
    char name[HARDWARE_NAME];
    double fp32;    /* TFLOP/s in float32 */
    double tensor;  /* TFLOP/s in TF32, dense; 0: it has no TF32 */
    double half;    /* TFLOP/s in float16 with float32 sums, dense; default: twice TF32 */
    double gbs;     /* memory bandwidth in GB/s */
    double gib;     /* GiB of memory */
    double reached; /* the fraction of gbs that memory-bound kernels reach */
    int pcie;       /* PCIe generation; without --machine it selects pc-pcie3, 4 or 5 */
};

struct link_spec {
    char name[HARDWARE_NAME];
    double gbs, us;
};

struct machine {
    char name[HARDWARE_NAME];
    char gpu[HARDWARE_NAME];  /* the GPU for which its numbers were fitted; "": any */
    int gpus;                 /* GPUs of a node */
    struct net net;           /* of a node */
    struct link_spec network; /* between nodes, per card; "": only one node */
    double cards;             /* network cards per node */

    /* Fitted or measured numbers; docs/clock.md names their defaults and sources. */
    double sum_gbs;                 /* bus bandwidth of an allreduce; 0: from the links */
    double exposed;                 /* the part of an allreduce's time that delays backward */
    double links;                   /* a factor on the rates of all links */
    double pageable_gbs;            /* copies from unpinned host memory */
    double forward_us, backward_us; /* host time of one eager operation */
    double replicate_us;            /* host time for each parameter tensor and device */
    double hook_us;                 /* in DDP: host time for each parameter tensor */
    double scale;                   /* a factor on the time of every kernel */
    int fitted;                     /* 1: fitted to published rows of this machine */
    double error;                   /* error in percent, if the file states it; else 0 */
    int is_like;                    /* 1: an alias of its machine, unless a join follows */
};

enum { HARDWARE_GPUS = 64, HARDWARE_LINKS = 64, HARDWARE_MACHINES = 80 };

struct hardware {
    struct gpu_spec gpu[HARDWARE_GPUS];
    struct link_spec link[HARDWARE_LINKS];
    struct machine machine[HARDWARE_MACHINES];
    int gpus, links, machines;
    const struct machine *last;          /* the last machine of the user's file, or NULL */
    char node[NET_NODES][HARDWARE_NAME]; /* names of switches in the machine being read */
    int nodes;
};

/* Reads the table, and from `file` (may be NULL) what a user's file adds or replaces. ERR_USAGE
 * names the line. */
int hardware_open(struct hardware **out, const char *file);
void hardware_free(struct hardware *hardware); /* NULL is fine */

/* Looks up a name; `what` begins the error. ERR_USAGE suggests the most similar name. */
int hardware_find_gpu(const struct hardware *h, const char *what, const char *name,
                      const struct gpu_spec **out);
int hardware_find_machine(const struct hardware *h, const char *what, const char *name,
                          const struct machine **out);

#endif
