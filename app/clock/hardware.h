/* Hardware by name: GPUs, links, machines. The table is the text clock/hardware.txt. A user's
 * file (--machine FILE) may hold the same lines:
 *
 *     gpu NAME fp32 T tensor T gbs X gib X       TFLOP/s, GB/s, GiB
 *     link NAME gbs X us X                       each direction; before the first byte
 *     machine NAME gpus N KEY X ...              the keys are below
 *     join gpu0-3 root0 LINK                     of the machine above: GPUs, named nodes, host
 *     # a comment, to the end of the line
 *
 * Keys that may be left out: of a GPU half, reached and pcie; of a machine (struct machine says
 * what they mean) like NAME (another machine, whose numbers and links it takes), gpu NAME, network
 * LINK, cards, links, sum, exposed, pageable, forward, backward, replicate, hook, scale,
 * error.
 */
#ifndef CLOCK_HARDWARE_H
#define CLOCK_HARDWARE_H

#include "clock/net.h"

enum { HARDWARE_NAME = 24 };

struct gpu_spec {
    char name[HARDWARE_NAME];
    double fp32;    /* TFLOP/s of plain float32 */
    double tensor;  /* TFLOP/s of TF32, dense; 0: it has none */
    double half;    /* of float16 added up in float32, dense; not given: twice TF32 */
    double gbs;     /* GB/s of its memory */
    double gib;     /* GiB of memory */
    double reached; /* the fraction of gbs that kernels bound by memory reach */
    int pcie;       /* its generation: without --machine the GPUs are in the pc-pcie of it */
};

struct link_spec {
    char name[HARDWARE_NAME];
    double gbs, us;
};

struct machine {
    char name[HARDWARE_NAME];
    char gpu[HARDWARE_NAME];  /* the GPU for which its numbers were fitted; "": any */
    int gpus;                 /* of a node */
    struct net net;           /* of a node */
    struct link_spec network; /* between nodes, each card; "": there is one node */
    double cards;             /* network cards of a node */

    /* Fitted or measured numbers; docs/clock.md names their defaults and sources. */
    double sum_gbs;                 /* bus bandwidth of an allreduce; 0: from the links */
    double exposed;                 /* the fraction of a sum's time by which it delays backward */
    double links;                   /* a factor on the rates of its links */
    double pageable_gbs;            /* from host memory that is not pinned */
    double forward_us, backward_us; /* host time of an eager operation */
    double replicate_us;            /* of each parameter tensor and device */
    double hook_us;                 /* of DDP for each parameter tensor */
    double scale;                   /* of the time of every kernel */
    int fitted;                     /* 1: fitted to published rows of this machine */
    double error;                   /* percent, if the file gives it; else 0 */
    int is_like;                    /* 1: another name of its machine, unless a join follows */
};

enum { HARDWARE_GPUS = 64, HARDWARE_LINKS = 64, HARDWARE_MACHINES = 80 };

struct hardware {
    struct gpu_spec gpu[HARDWARE_GPUS];
    struct link_spec link[HARDWARE_LINKS];
    struct machine machine[HARDWARE_MACHINES];
    int gpus, links, machines;
    const struct machine *last;          /* of the user's file; NULL: it has none */
    char node[NET_NODES][HARDWARE_NAME]; /* of the machine that is read: names of switches */
    int nodes;
};

/* The table, and with `file` (NULL: none) what a user's file adds or replaces. ERR_USAGE names the
 * line. */
int hardware_open(struct hardware **out, const char *file);
void hardware_free(struct hardware *hardware);

/* By name; `what` begins the error. ERR_USAGE names the nearest. */
int hardware_find_gpu(const struct hardware *h, const char *what, const char *name,
                      const struct gpu_spec **out);
int hardware_find_machine(const struct hardware *h, const char *what, const char *name,
                          const struct machine **out);

#endif
