/* DataParallel along a dimension other than the first. The step knows only rows, so the chosen
 * dimension moves to the front before a cut, and back before forward or the program reads it:
 *
 *     x (L,N,H)       device 0: (N,L,H)    rows, cut     replica: (n,L,H)    forward sees (L,n,H)
 *     forward's (L,n,O)   replica: (n,L,O)    rows, gathered: (N,L,O)    output device: (L,N,O)
 *
 * The gradient of the output is cut as the output was gathered. On a replica both moves are nodes
 * of its tape, so backward goes through them. */
#include <string.h>

#include "dp/dp.h"

/* Which dimension of x is dimension i of the result. back 0: m->dim goes to the front. */
static void find_order(const struct duet_data_parallel *m, int rank, int back,
                       int order[MAX_RANK]) {
    int d = m->dim < 0 ? m->dim + rank : m->dim;
    for (int i = 0; i < rank; i++)
        order[i] = i > d ? i : back ? (i < d ? i + 1 : 0) : (i ? i - 1 : d);
}

void data_parallel_turn(const struct duet_data_parallel *m, struct tensor *shape, int back) {
    int order[MAX_RANK], dims[MAX_RANK];
    find_order(m, shape->rank, back, order);
    for (int i = 0; i < shape->rank; i++)
        dims[i] = shape->dims[order[i]];
    memcpy(shape->dims, dims, (size_t)shape->rank * sizeof *dims);
}

int data_parallel_check_dim(const struct duet_data_parallel *m, const struct tensor *t) {
    const int is_there = m->dim >= -t->rank && m->dim < t->rank;
    if (is_there && (!m->dim || dtype_bytes(t->dtype) == sizeof(float))) return OK;
    if (is_there)
        return fail(ERR_USAGE, "DataParallel: dim %d of a tensor of type %d: give float or int32",
                    m->dim, (int)t->dtype);
    return fail(ERR_USAGE,
                "DataParallel: Dimension out of range (expected to be in range of [%d, %d], "
                "but got %d)",
                -t->rank, t->rank - 1, m->dim);
}

/* Copies `from` to `to`, both on `device`; data_parallel_turn gives the shape. */
static int move(const struct duet_data_parallel *m, struct device *device,
                const struct tensor *from, const struct tensor *to, int back) {
    int order[MAX_RANK];
    find_order(m, from->rank, back, order);
    struct op_args args = {.in[0] = tensor_permuted(from, order), .out[0] = *to};
    args.in[0].dtype = args.out[0].dtype = DTYPE_F32; /* any 4-byte elements */
    return tensor_count(from) ? launch(device_compute(device), OP_PERMUTE, &args) : OK;
}

int data_parallel_to_front(struct duet_data_parallel *m, int lead, const duet_tensor *whole,
                           struct pieces *p, enum mem_cause cause, duet_tensor *front) {
    *front = (struct duet_tensor){.device = whole->device, .t = whole->t, .borrowed = 1};
    if (!m->dim) return OK;
    CHECK(data_parallel_check_dim(m, &whole->t));
    CHECK(data_parallel_room(m, p, lead, tensor_bytes(&whole->t), cause));
    data_parallel_turn(m, &front->t, 0);
    front->t.data = p->memory[lead];
    return move(m, whole->device, &whole->t, &front->t, 0);
}

duet_var *data_parallel_turn_var(const struct duet_data_parallel *m, duet_tape *t, duet_var *x,
                                 int back) {
    int order[MAX_RANK];
    if (!m->dim || !x) return x;
    find_order(m, x->value.rank, back, order);
    return to_plain(t, duet_permute(t, x, order)); /* other devices read its memory */
}

int data_parallel_show(struct duet_data_parallel *m, int i, int r, duet_var **x) {
    struct pieces *p = &m->x[i];
    duet_tape *t = m->tape[r];
    p->shown[r] = p->part[r];
    if (!m->dim) return OK;
    *x = data_parallel_turn_var(m, t, *x, 1);
    if (*x) {
        p->shown[r].t = (*x)->value;
        return OK;
    }
    CHECK(duet_tape_error(t));
    data_parallel_turn(m, &p->shown[r].t, 1);
    const struct tensor *shape = &p->shown[r].t;
    p->shown[r].t = tape_tensor(t, shape->dtype, LAYOUT_PLAIN, shape->rank, shape->dims);
    CHECK(duet_tape_error(t));
    return move(m, p->part[r].device, &p->part[r].t, &p->shown[r].t, 1);
}

int data_parallel_turn_back(const struct duet_data_parallel *m, duet_tensor **tensor) {
    duet_tensor *front = *tensor;
    struct tensor shape = front->t;
    if (!m->dim) return OK;
    data_parallel_turn(m, &shape, 1);
    CHECK(tensor_new(tensor, front->device, shape.dtype, shape.rank, shape.dims, MEM_GATHERED));
    int code = move(m, front->device, &front->t, &(*tensor)->t, 1);
    if (!code) code = stream_sync(device_compute(front->device)); /* `front` is freed next */
    duet_tensor_free(front);
    return code;
}

/* Growth waits, because the memory may be in use. */
int data_parallel_room(struct duet_data_parallel *m, struct pieces *p, int r, size_t bytes,
                       enum mem_cause cause) {
    struct device *device = m->dp.group.device[r];
    if (bytes <= p->room[r]) return OK;
    if (p->memory[r]) {
        CHECK(device_group_follow(&m->dp.group, r));
        CHECK(stream_sync(device_compute(device)));
        device_free(device, p->memory[r]);
    }
    p->memory[r] = NULL, p->room[r] = 0;
    CHECK(device_alloc(device, &p->memory[r], bytes, cause));
    p->room[r] = bytes;
    return OK;
}
