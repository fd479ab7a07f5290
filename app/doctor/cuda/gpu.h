/* Facts from CUDA that the doctor and `duet devices` print. They bypass the device layer.
 * doctor/cuda/facts.c is built with CUDA, doctor/cuda/absent.c without it. */
#ifndef DOCTOR_CUDA_GPU_H
#define DOCTOR_CUDA_GPU_H

#include <stddef.h>
#include <stdint.h>

/* How this program was built: "CUDA 13.0; at build time cublas 13.1, nccl 2.28", or
 * "no CUDA". */
void gpu_build(char *text, size_t bytes);

/* "for CUDA 13.1": the newest CUDA that the driver here supports. Creates no context. ERR_USAGE: no
 * driver is installed; the error says so. */
int gpu_driver(char *text, size_t bytes);

struct gpu_facts {
    char name[64];
    int major, minor; /* compute capability */
    int multiprocessors;
    uint64_t memory; /* memory of the GPU in bytes */
    int exclusive;   /* 1: one process at a time may use the GPU, so ranks cannot share it */
};
/* Creates no context. ERR_FAILED: no GPU has this number. */
int gpu_facts(int gpu, struct gpu_facts *facts);

/* Returns 1 if GPU `from` can access the memory of GPU `to` directly. 0: copies between them go
 * through host memory. */
int gpu_reaches(int from, int to);

#endif
