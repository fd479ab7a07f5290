/* rpc/frame and rpc/wire: what one worker sends to another, header and values. */
#include "rpc/frame.h"
#include "rpc/wire.h"
#include "tests/fuzz/fuzz.h"

static size_t sum; /* so that all that was read is used */

/* All that a value points to lies within the input. */
static void use(const struct wire_value *v, const uint8_t *data, size_t size, int depth) {
    const uint8_t *at = NULL;
    size_t bytes = 0;
    MUST(depth < 64);
    switch (v->type) {
    case DUET_RPC_TEXT: at = (const uint8_t *)v->text.data, bytes = strlen(v->text.data) + 1; break;
    case DUET_RPC_BYTES: at = (const uint8_t *)v->text.data, bytes = v->text.bytes; break;
    case DUET_RPC_RREF: at = (const uint8_t *)v->rref.type, bytes = strlen(v->rref.type) + 1; break;
    case DUET_RPC_VAR:
    case DUET_RPC_TENSOR:
        at = v->tensor.data, bytes = wire_type_bytes(v->tensor.type);
        for (int i = 0; i < v->tensor.rank; i++)
            bytes *= (size_t)v->tensor.shape[i];
        break;
    case DUET_RPC_LIST:
        for (int i = 0; i < v->count; i++)
            use(&v->items[i], data, size, depth + 1);
        break;
    default: break;
    }
    MUST(!bytes || (at >= data && bytes <= size && at <= data + size - bytes));
    for (size_t i = 0; i < bytes; i++)
        sum += at[i];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct frame_header header;
    struct opening opening;
    struct hello hello, own = {.world = 2};
    if (size >= sizeof header) {
        memcpy(&header, data, sizeof header);
        int code = frame_check(&header);
        if (code) check_error(code);
        MUST(code || (header.bytes <= FRAME_MOST_BYTES && header.beside <= FRAME_MOST_BYTES));
    }
    if (size >= sizeof opening) {
        memcpy(&opening, data, sizeof opening);
        int code = opening_check(&opening);
        if (code) check_error(code);
    }
    if (size >= sizeof hello) {
        memcpy(&hello, data, sizeof hello);
        int code = hello_check(&hello, &own);
        if (code) check_error(code);
        MUST(code || (strlen(hello.name) < HELLO_NAME && strlen(hello.place) < PLACE_BYTES));
    }
    struct wire_in in = {.data = data, .bytes = size, .beside = data, .beside_bytes = size};
    struct wire_value value;
    int code = OK;
    while (!code && in.at < in.bytes) {
        code = wire_read(&in, &value);
        if (code) {
            check_error(code);
        } else {
            use(&value, data, size, 0);
            wire_value_free(&value);
        }
    }
    return 0;
}
