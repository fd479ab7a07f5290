/* Ranks in a line, and sums over them: state.h has the drawing. */
#include "group/mpi/state.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "allreduce/host/executor.h"
#include "base/error.h"
#include "group/typed.h"

/* Up to SHORT bytes one collective is faster than two. MPI counts in ints. */
enum { SHORT = 4 << 10, LONGEST = 1 << 28, ALIGN = 64 };

int line_open(struct line *line, struct network *net, int member, int key, int n) {
    *line = (struct line){.net = net, .n = n, .rank = key};
    return mpi_split(net, member, key, &line->comm);
}

void line_close(struct line *line) {
    free(line->scratch);
    line->scratch = NULL;
}

int line_blocks(struct blocks *blocks, int n, const size_t *sizes, size_t element) {
    size_t at = 0;
    for (int r = 0; r < n; r++) {
        blocks->at[r] = (int)at;
        at += sizes[r] * element;
        if (at > INT_MAX)
            return fail(ERR_USAGE, "MPI: %zu bytes in one call: give less than 2 GiB", at);
        blocks->count[r] = (int)(at - (size_t)blocks->at[r]);
    }
    return OK;
}

int line_broadcast(struct line *line, void *data, size_t bytes, int root, struct wait *wait) {
    struct mpi *mpi = &line->net->mpi;
    struct blocks all = {.count = {0}};
    MPI_Request request;
    CHECK(line_blocks(&all, 1, &bytes, 1));
    return mpi_wait(line->net,
                    mpi->Ibcast(data, all.count[0], mpi->byte, root, line->comm, &request),
                    &request, wait);
}

/* After an error MPI may still write to scratch, so it is not freed. */
static int await(struct line *line, int result, MPI_Request *request, struct wait *wait) {
    int code = mpi_wait(line->net, result, request, wait);
    if (code) line->scratch_bytes = 0, line->scratch = NULL;
    return code;
}

static int take_scratch(struct line *line, size_t bytes) {
    if (bytes <= line->scratch_bytes) return OK;
    free(line->scratch);
    line->scratch_bytes = 0;
    line->scratch = malloc(bytes);
    if (!line->scratch)
        return fail(ERR_MEMORY, "MPI: out of host memory for %zu bytes: free some", bytes);
    line->scratch_bytes = bytes;
    return OK;
}

/* out = the n blocks of `length` elements in scratch, added up. */
static void fold(const struct line *line, struct arithmetic how, double scale, void *out,
                 size_t length) {
    const struct plan_step step = {.op = PLAN_SUM, .length = length};
    const void *terms[MAX_DEVICES];
    for (int r = 0; r < line->n; r++)
        terms[r] = (char *)line->scratch + (size_t)r * length * dtype_bytes(how.type);
    if (how.type == DTYPE_F32 && how.op == ELEMENT_SUM)
        move_fold((float *const *)&out, 1, (const float *const *)terms, line->n, (float)scale,
                  length);
    else
        typed_move(how, &step, &out, 1, terms, line->n, NULL, scale, 1);
}

static int sum_short(struct line *line, struct arithmetic how, double scale, const void *in,
                     void *out, size_t count, struct wait *wait) {
    struct mpi *mpi = &line->net->mpi;
    int bytes = (int)(count * dtype_bytes(how.type));
    MPI_Request request;
    CHECK(take_scratch(line, (size_t)bytes * (size_t)line->n));
    CHECK(await(line,
                mpi->Iallgather(in, bytes, mpi->byte, line->scratch, bytes, mpi->byte, line->comm,
                                &request),
                &request, wait));
    fold(line, how, scale, out, count);
    return OK;
}

int line_sum_block(struct line *line, struct arithmetic how, double scale, const void *in,
                   void *out, const size_t *sizes, struct wait *wait) {
    struct mpi *mpi = &line->net->mpi;
    struct blocks to, from;
    size_t mine[MAX_DEVICES], length = sizes[line->rank], element = dtype_bytes(how.type);
    MPI_Request request;
    for (int r = 0; r < line->n; r++)
        mine[r] = length;
    CHECK(line_blocks(&to, line->n, sizes, element));
    CHECK(line_blocks(&from, line->n, mine, element));
    CHECK(take_scratch(line, (size_t)line->n * length * element));
    CHECK(await(line,
                mpi->Ialltoallv(in, to.count, to.at, mpi->byte, line->scratch, from.count, from.at,
                                mpi->byte, line->comm, &request),
                &request, wait));
    if (length) fold(line, how, scale, out, length);
    return OK;
}

/* The chunks of a sum, as long as those of allreduce/plans/direct.c. */
static void cut(const struct line *line, size_t count, size_t element, size_t *sizes) {
    size_t n = (size_t)line->n, align = ALIGN / element,
           chunk = (count + n * align - 1) / (n * align) * align;
    for (size_t r = 0; r < n; r++) {
        size_t at = r * chunk < count ? r * chunk : count;
        sizes[r] = count - at < chunk ? count - at : chunk;
    }
}

size_t line_sum_takes(const struct line *line, size_t count, size_t element, int r) {
    size_t sizes[MAX_DEVICES];
    cut(line, count, element, sizes);
    return count * element <= SHORT ? count : sizes[line->rank] + sizes[r];
}

static int sum_long(struct line *line, struct arithmetic how, double scale, const void *in,
                    void *out, size_t count, struct wait *wait) {
    struct mpi *mpi = &line->net->mpi;
    struct blocks all;
    size_t element = dtype_bytes(how.type), sizes[MAX_DEVICES];
    MPI_Request request;
    cut(line, count, element, sizes);
    CHECK(line_blocks(&all, line->n, sizes, element));
    CHECK(line_sum_block(line, how, scale, in, (char *)out + all.at[line->rank], sizes, wait));
    return mpi_wait(line->net,
                    mpi->Iallgatherv(MPI_IN_PLACE, 0, mpi->byte, out, all.count, all.at, mpi->byte,
                                     line->comm, &request),
                    &request, wait);
}

int line_sum(struct line *line, struct arithmetic how, double scale, const void *in, void *out,
             size_t count, struct wait *wait) {
    size_t element = dtype_bytes(how.type), most = LONGEST / element;
    if (count * element <= SHORT) return sum_short(line, how, scale, in, out, count, wait);
    for (size_t at = 0; at < count; at += most) {
        size_t part = count - at < most ? count - at : most;
        CHECK(sum_long(line, how, scale, (const char *)in + at * element,
                       (char *)out + at * element, part, wait));
    }
    return OK;
}
