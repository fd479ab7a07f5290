/* What the doctor and `duet devices` ask of CUDA beside the device layer: words for people.
 * cuda/facts.c where CUDA is, cuda_absent.c where it is not. */
#ifndef DOCTOR_GPU_H
#define DOCTOR_GPU_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* "CUDA 13.0; found beside it: cublas 13.0, nccl 2.27", or "no CUDA": how this program was
 * built. */
void gpu_build(char *text, size_t bytes);

/* "for CUDA 13.1" of the driver here; ERR_USAGE and the reason where there is none. Makes no
 * context. */
int gpu_driver(char *text, size_t bytes);

struct gpu_facts {
    char name[64];
    int major, minor; /* compute capability */
    int multiprocessors;
    uint64_t memory;
    int exclusive; /* 1: the GPU takes one process at a time; ranks cannot share it */
};
/* Makes no context on it. ERR_FAILED: there is none of this number. */
int gpu_facts(int gpu, struct gpu_facts *facts);

/* Bytes free now. Makes a context: for a process that uses the GPU anyway. */
int gpu_free_memory(int gpu, uint64_t *bytes);

/* 1: GPU `from` loads and stores in the memory of `to` directly; 0: copies go through host
 * memory. */
int gpu_reaches(int from, int to);

#ifdef __cplusplus
}
#endif
#endif
