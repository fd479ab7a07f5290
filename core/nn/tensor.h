/* A tensor of duet.h is a struct tensor and the device on which it is. nn/tensor.c implements the
 * functions of duet/core.h. The functions below make and check tensors. */
#ifndef NN_TENSOR_H
#define NN_TENSOR_H

#include "device/device.h"
#include "device/op_table.h"
#include "duet/core.h"

struct duet_tensor {
    struct device *device;
    struct tensor t;          /* in the layout PLAIN */
    int borrowed;             /* 1: belongs to a duet_params; duet_tensor_free does not free it */
    int view;                 /* 1: it uses another tensor's memory */
    int views;                /* how many views keep its memory alive */
    int freed;                /* 1: the caller has freed it; the last view frees the memory */
    struct duet_tensor *base; /* in a view: the owner of the memory; NULL: a duet_params */
    char *has_grad;           /* in a gradient and its views: the mark in duet_params; else NULL */
};

/* For messages: the shape of a struct tensor, "(8, 20)", valid until the end of the enclosing
 * block. */
#define SHAPE(t) op_shape_text(t, (char[SHAPE_TEXT]){0})

/* ERR_USAGE: no tensor can have this shape. The message begins with `what`. */
int tensor_check_shape(const char *what, int rank, const int *shape);

/* Makes a tensor with new memory; its contents are undefined. */
int tensor_new(duet_tensor **out, struct device *device, enum dtype dtype, int rank,
               const int *dims, enum mem_cause cause);

/* 1: the two share some memory, but not all. An op may take both only if it reads both. */
int tensor_overlap(const struct tensor *a, const struct tensor *b);

/* The program writes its own numbers to the tensor. */
static inline void tensor_written(const duet_tensor *tensor) {
    if (tensor && tensor->has_grad) *tensor->has_grad = 1;
}

/* Enqueues the filling of a float tensor with zeros. */
int tensor_zero(struct device *device, const struct tensor *t);

#endif
