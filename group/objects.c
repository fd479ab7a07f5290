/* Calls that move bytes of any length. First their lengths, then, in a call whose blocks have
 * lengths of their own, the bytes themselves. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "group/state.h"

static int no_memory(struct group *g, size_t bytes) {
    int code = fail(ERR_MEMORY, "rank %d: objects: %zu bytes of host memory: free some",
                    g->ranks[g->rank], bytes);
    comm_abort(g->job->comm, code, error_message()); /* the peers would wait */
    return code;
}

/* A call of `count` elements of `type`. */
static struct group_call call_of(enum collective what, enum element_type type, size_t count,
                                 int root, const void *input, void *output) {
    return (struct group_call){.what = what,
                               .count = count,
                               .how = {type, ELEMENT_SUM},
                               .root = root,
                               .input = input,
                               .output = output};
}

static size_t total(const size_t *sizes, int n) {
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        sum += sizes[i];
    return sum;
}

/* n objects that lie behind each other, each into memory of its own. */
static int unpack(struct group *g, struct group_object *list, int n, const char *packed,
                  const size_t *sizes) {
    for (int i = 0; i < n; i++)
        list[i] = (struct group_object){NULL, sizes[i]};
    for (int i = 0; i < n; packed += sizes[i++]) {
        list[i].data = malloc(sizes[i] + 1);
        if (!list[i].data) {
            int code = no_memory(g, sizes[i]);
            for (; i >= 0; list[i--].data = NULL)
                free(list[i].data);
            return code;
        }
        memcpy(list[i].data, packed, sizes[i]);
    }
    return OK;
}

static void pack(char *packed, const struct group_object *list, int n) {
    for (int i = 0; i < n; packed += list[i++].bytes)
        if (list[i].bytes) memcpy(packed, list[i].data, list[i].bytes);
}

static int check_root(const struct group *g, int root) {
    if (root >= 0 && root < g->n) return OK;
    return fail(ERR_USAGE, "rank %d: objects: root %d: give 0 to %d", g->ranks[g->rank], root,
                g->n - 1);
}

/* ---- broadcast ---- */

int group_broadcast_objects(struct group *g, struct group_object *list, int count, int root) {
    CHECK(check_root(g, root));
    int gives = g->rank == root, code = OK;
    size_t *sizes = calloc((size_t)count + 1, sizeof *sizes), bytes = 0;
    char *packed = NULL;
    if (!sizes) return no_memory(g, (size_t)count * sizeof *sizes);
    for (int i = 0; i < count && gives; i++)
        sizes[i] = list[i].bytes;
    struct group_call lengths =
        call_of(COLLECTIVE_BROADCAST, ELEMENT_I64, (size_t)count, root, sizes, sizes);
    CHECK_GOTO(group_run(g, &lengths, NULL), code, out);
    bytes = total(sizes, count);
    packed = malloc(bytes + 1);
    if (!packed) CHECK_GOTO(no_memory(g, bytes), code, out);
    if (gives) pack(packed, list, count);
    struct group_call body = call_of(COLLECTIVE_BROADCAST, ELEMENT_U8, bytes, root, packed, packed);
    CHECK_GOTO(group_run(g, &body, NULL), code, out);
    if (!gives) code = unpack(g, list, count, packed, sizes);
out:
    free(packed);
    free(sizes);
    return code;
}

/* ---- gather ---- */

int group_gather_objects(struct group *g, struct group_object *objects,
                         const struct group_object *object, int root) {
    int to_all = root < 0, takes = to_all || g->rank == root, code = OK;
    enum collective what = to_all ? COLLECTIVE_ALL_GATHER : COLLECTIVE_GATHER;
    size_t mine = object->bytes, sizes[MAX_DEVICES] = {0};
    if (!to_all) CHECK(check_root(g, root));
    if (to_all) root = 0;
    struct group_call lengths = call_of(what, ELEMENT_I64, 1, root, &mine, sizes);
    CHECK(group_run(g, &lengths, NULL));
    size_t bytes = takes ? total(sizes, g->n) : 0;
    char *packed = malloc(bytes + 1);
    if (!packed) return no_memory(g, bytes);
    struct group_call body = call_of(what, ELEMENT_U8, mine, root, object->data, packed);
    body.uneven = 1;
    if (takes) body.output_sizes = sizes;
    CHECK_GOTO(group_run(g, &body, NULL), code, out);
    if (takes) code = unpack(g, objects, g->n, packed, sizes);
out:
    free(packed);
    return code;
}

/* ---- scatter ---- */

int group_scatter_objects(struct group *g, struct group_object *object,
                          const struct group_object *objects, int root) {
    CHECK(check_root(g, root));
    int gives = g->rank == root, code = OK;
    size_t mine = 0, sizes[MAX_DEVICES] = {0};
    for (int r = 0; r < g->n && gives; r++)
        sizes[r] = objects[r].bytes;
    struct group_call lengths = call_of(COLLECTIVE_SCATTER, ELEMENT_I64, 1, root, sizes, &mine);
    CHECK(group_run(g, &lengths, NULL));
    size_t bytes = total(sizes, g->n);
    char *packed = malloc(bytes + 1), *received = malloc(mine + 1);
    if (!packed || !received) CHECK_GOTO(no_memory(g, bytes + mine), code, out);
    if (gives) pack(packed, objects, g->n);
    struct group_call body = call_of(COLLECTIVE_SCATTER, ELEMENT_U8, mine, root, packed, received);
    body.uneven = 1;
    if (gives) body.input_sizes = sizes;
    CHECK_GOTO(group_run(g, &body, NULL), code, out);
    *object = (struct group_object){received, mine};
    received = NULL;
out:
    free(packed);
    free(received);
    return code;
}

/* ---- messages ----
 *
 * Two messages of tag 0, one behind the other: the lengths, then the bytes. Where the first one may
 * come from anybody, the second comes from the same rank. */

static struct group_call message(enum element_type type, size_t count, int peer, int receive,
                                 void *memory) {
    struct group_call call =
        call_of(COLLECTIVE_SEND, type, count, 0, memory, receive ? memory : NULL);
    call.peer = peer;
    call.receive = receive;
    return call;
}

int group_send_objects(struct group *g, const struct group_object *list, int count, int to) {
    int code = OK;
    size_t *sizes = calloc((size_t)count + 1, sizeof *sizes), bytes = 0;
    char *packed = NULL;
    if (!sizes) return no_memory(g, (size_t)count * sizeof *sizes);
    for (int i = 0; i < count; i++)
        sizes[i] = list[i].bytes;
    bytes = total(sizes, count);
    struct group_call lengths = message(ELEMENT_I64, (size_t)count, to, 0, sizes), body;
    packed = malloc(bytes + 1);
    if (!packed) CHECK_GOTO(no_memory(g, bytes), code, out);
    pack(packed, list, count);
    CHECK_GOTO(group_run(g, &lengths, NULL), code, out);
    body = message(ELEMENT_U8, bytes, to, 0, packed);
    code = group_run(g, &body, NULL);
out:
    free(packed);
    free(sizes);
    return code;
}

/* Receives the lengths, from anybody if `from` says so; *source becomes their sender. */
static int receive_lengths(struct group *g, size_t *sizes, int count, int from, int *source) {
    struct group_call lengths = message(ELEMENT_I64, (size_t)count, from, 1, sizes);
    struct work *work;
    CHECK(group_run(g, &lengths, &work));
    int code = work_wait(work);
    *source = work_source(work);
    work_free(work);
    return code;
}

int group_recv_objects(struct group *g, struct group_object *list, int count, int from,
                       int *source) {
    int code = OK, sender = from;
    size_t *sizes = calloc((size_t)count + 1, sizeof *sizes), bytes = 0;
    char *packed = NULL;
    struct group_call body;
    if (!sizes) return no_memory(g, (size_t)count * sizeof *sizes);
    CHECK_GOTO(receive_lengths(g, sizes, count, from, &sender), code, out);
    bytes = total(sizes, count);
    packed = malloc(bytes + 1);
    if (!packed) CHECK_GOTO(no_memory(g, bytes), code, out);
    body = message(ELEMENT_U8, bytes, sender, 1, packed);
    CHECK_GOTO(group_run(g, &body, NULL), code, out);
    CHECK_GOTO(unpack(g, list, count, packed, sizes), code, out);
    if (source) *source = sender;
out:
    free(packed);
    free(sizes);
    return code;
}
