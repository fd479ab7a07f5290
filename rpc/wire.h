/* Values as bytes, in a call and in its answer.
 *
 *     NONE                 type
 *     INT, NUMBER          type, 8 bytes
 *     TEXT, BYTES          type, length (8), the bytes; a string with its final 0
 *     LIST                 type, count (4), the items
 *     RREF                 type, struct wire_rref
 *     TENSOR               type, struct wire_tensor, the elements
 *
 * Reading checks every length and id. A tensor that was just read has the type COMES_TENSOR and
 * points into the bytes until it is made on its device (rpc/values.c). */
#ifndef RPC_WIRE_H
#define RPC_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "duet.h"

enum {
    MOST_VARS = 16,        /* per message */
    MOST_VALUES = 1 << 20, /* per call or list */
    DEEPEST_LIST = 16,     /* nesting of lists */
    WIRE_NAME = 128        /* bytes of a name, with its final 0 */
};

/* The largest message: a tensor of 2^31 - 1 doubles, and some room. */
static const uint64_t MESSAGE_MOST_BYTES = (uint64_t)17 << 30;

/* A value that is being written. */
struct wire_out {
    uint8_t *data;                /* owned */
    size_t bytes, room, value_at; /* value_at: where the value begins */
    int failed;                   /* for wire_error */
    struct var_list *vars;        /* rpc/autograd.h: the vars of the message; NULL: not allowed */
    duet_rref **passed;           /* [passed_count] the references in it so far, held; owned */
    int passed_count;
};
int wire_error(const struct wire_out *w); /* out of host memory, or too large */
void wire_put(struct wire_out *w, const void *data, size_t bytes);
#define wire_put_as(w, type, value) wire_put(w, &(type){(type)(value)}, sizeof(type))
void wire_put_text(struct wire_out *w, const char *text);
/* Memory for the elements of a tensor; NULL: none. Valid until the next put. */
void *wire_put_room(struct wire_out *w, size_t bytes);

struct wire_rref {
    uint64_t id, owner;
};

struct wire_tensor {
    uint8_t type, rank;
    uint8_t number; /* number of a var in the message, whose gradient is wanted, from 1; or 0 */
    int32_t shape[DUET_MAX_RANK];
};

enum { COMES_TENSOR = 64 };

struct wire_in {
    duet_rpc *rpc; /* the reader */
    const uint8_t *data;
    size_t bytes, at;
};
/* Each returns ERR_FAILED if the bytes end or are invalid. A value that was read holds its
 * references, even after an error: value_drop. Called under the lock. */
int wire_get(struct wire_in *w, void *out, size_t bytes);
int wire_get_text(struct wire_in *w, const char **out);
int wire_read(struct wire_in *w, struct duet_rpc_value *out);

const char *wire_type_name(enum duet_rpc_type type);

#endif
