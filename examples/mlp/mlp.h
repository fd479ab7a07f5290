/* Shared by the four programs of this folder: the model (model.c) and the data (data.c). */
#ifndef MLP_H
#define MLP_H

#include <stdio.h>
#include <stdlib.h>

#include "duet.h"

#define TRY(call)                      \
    do {                               \
        if ((code = (call))) goto out; \
    } while (0)

enum { FEATURES = 20, HIDDEN = 64, CLASSES = 4, BATCH = 64, STEPS = 5 };

extern const struct duet_model mlp;

/* Makes samples first .. first + n - 1 of the batch of size BATCH: X (n,FEATURES), y (n). */
int mlp_batch(duet_device *device, int first, int n, duet_tensor **X, duet_tensor **y);

#endif
