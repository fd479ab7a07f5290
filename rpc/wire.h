/* Values as bytes: what stands in the payload of a call and of its answer.
 *
 *     NONE                 type
 *     INT, NUMBER          type, 8 bytes
 *     TEXT, BYTES          type, length (8), the bytes; a text with its 0
 *     LIST                 type, count (4), the items
 *     RREF                 type, owner (2), reference (8), the type of the object (TEXT)
 *     TENSOR               type, element type, dimensions, sizes (4 each), the elements from a
 *                          multiple of 64 from the start on
 *     VAR                  as TENSOR, with its number among those of the message (1) before all
 *                          but the type: its gradient is wanted
 *
 * Reading is in two parts. wire_read checks every length and id and makes a tree that points into
 * the bytes; it needs nothing but them, so a fuzzer can drive it. rpc/values.c makes tensors and
 * references of the tree. */
#ifndef RPC_WIRE_H
#define RPC_WIRE_H

#include <stddef.h>
#include <stdint.h>

#include "duet.h"

enum {
    MOST_VARS = 16,        /* of a message */
    MOST_VALUES = 1 << 20, /* of a call or a list */
    DEEPEST_LIST = 16      /* lists in lists */
};

/* The largest message: a tensor of 2^31 - 1 doubles, and some room. */
static const uint64_t MESSAGE_MOST_BYTES = (uint64_t)17 << 30;

/* What is being written. */
struct wire_out {
    uint8_t *data;                /* owned */
    size_t bytes, room, value_at; /* value_at: where the value begins */
    int failed;                   /* what wire_error says */
    struct var_list *vars;        /* rpc/autograd.h: the vars of the message; NULL: none may be */
    duet_rref **passed;           /* [passed_count] the references in it so far, held; owned */
    int passed_count;
    int numbered; /* 1: tensors that came as VAR are VAR again, of the same number */
};
int wire_error(const struct wire_out *w); /* no host memory, or too large: the same for all puts */
void wire_put(struct wire_out *w, const void *data, size_t bytes);
void wire_put_u8(struct wire_out *w, unsigned value);
void wire_put_u32(struct wire_out *w, uint32_t value);
void wire_put_u64(struct wire_out *w, uint64_t value);
void wire_put_text(struct wire_out *w, const char *text);
/* Room for the elements of a tensor; NULL: none. Valid until the next put. */
void *wire_put_elements(struct wire_out *w, size_t bytes);
void wire_drop(struct wire_out *w); /* the bytes */

/* What has come: a node of the tree. */
struct wire_value {
    enum duet_rpc_type type;
    int count; /* LIST */
    union {
        int64_t integer;
        double number;
        struct {
            const char *data;
            size_t bytes;
        } text; /* TEXT, BYTES */
        struct {
            int owner;
            uint64_t id;
            const char *type;
            duet_rref *here; /* once it has arrived: value_arrive */
        } rref;
        struct {
            enum duet_type type;
            int rank, shape[DUET_MAX_RANK], number; /* number: of a VAR */
            const void *data;
        } tensor;                 /* TENSOR, VAR */
        struct wire_value *items; /* owned */
    };
};

struct wire_in {
    const uint8_t *data;
    size_t bytes, at;
    int from, self, world; /* who has written, who reads, and how many workers there are */
};
/* Each returns ERR_FAILED where the bytes end or make no sense. */
int wire_get(struct wire_in *w, void *out, size_t bytes);
int wire_get_text(struct wire_in *w, const char **out);
int wire_read(struct wire_in *w, struct wire_value *out);
void wire_value_free(struct wire_value *v); /* the tree alone */

size_t wire_type_bytes(enum duet_type type); /* of an element */
const char *wire_type_name(enum duet_rpc_type type);

#endif
