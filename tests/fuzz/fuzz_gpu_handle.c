/* device/gpu_handle: the bytes of a memory_handle from another rank. The range of a handle that is
 * accepted lies inside the exporter's slab, and packing it gives the same bytes again. */
#include "device/gpu_handle.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct memory_handle handle[2];
    memset(handle, 0, sizeof handle);
    memcpy(handle, data, size < sizeof handle ? size : sizeof handle);
    struct gpu_handle gpu, same;
    memset(&gpu, 0, sizeof gpu); /* the bytes between its fields too, which memcmp compares */
    memset(&same, 0, sizeof same);
    int code = gpu_handle_unpack(&handle[0], &gpu);
    if (code) {
        check_error(code);
    } else {
        MUST(handle[0].size > 0 && handle[0].offset <= gpu.slab_bytes);
        MUST(handle[0].size <= gpu.slab_bytes - handle[0].offset);
        struct memory_handle again = handle[0];
        gpu_handle_pack(&again, &gpu);
        MUST(gpu_handle_unpack(&again, &same) == OK && !memcmp(&same, &gpu, sizeof gpu));
        MUST(gpu_handles_share(&handle[0], &handle[0]));
        gpu_handle_is_own(&handle[0], &gpu);
    }
    MUST(gpu_handles_share(&handle[0], &handle[1]) == gpu_handles_share(&handle[1], &handle[0]));
    return 0;
}
