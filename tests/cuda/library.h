/* Shared by the tests of libraries: a device that multiplies with the fake cuBLAS, and the logs of
 * fake libraries. */
#ifndef TESTS_CUDA_LIBRARY_H
#define TESTS_CUDA_LIBRARY_H

#include "tests/core/device/shared.h"
#include "tests/core/device/kernels_common.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

#ifdef CUDA_EMULATION
#include <dlfcn.h>
#include <limits.h>

#include "tests/stand_ins/fake_cuda_libraries/fake.h"

/* The file of a fake library, also when the program has changed its folder. */
static inline const char *fake_file(const char *name) {
    static char path[PATH_MAX];
    char relative[PATH_MAX];
    snprintf(relative, sizeof relative, "%s/tests/stand_ins/fake_cuda_libraries/%s.so", BUILD_DIR,
             name);
    cr_assert_not_null(realpath(relative, path), "%s is not built", relative);
    return path;
}

static inline void use_fakes(void) {
    setenv("DUET_CUBLAS", fake_file("fake_cublas"), 1);
}

static inline struct fake_log *log_of(const char *name) {
    void *library = dlopen(fake_file(name), RTLD_NOW);
    cr_assert_not_null(library, "%s", dlerror());
    struct fake_log *log = dlsym(library, FAKE_LOG);
    cr_assert_not_null(log);
    return log;
}

static inline struct fake_log *cublas(void) {
    return log_of("fake_cublas");
}

static inline struct device_config library_config(int tf32) {
    struct device_config config = test_config(DEVICE_CUDA, 0);
    config.memory_bytes = 256 << 20;
    config.math = DEVICE_MATH_LIBRARY;
    config.allow_tf32 = tf32;
    use_fakes();
    return config;
}

static inline struct device *library_device(int tf32) {
    struct device_config config = library_config(tf32);
    struct device *device;
    MUST(device_open(&device, &config));
    return device;
}
#endif

#endif
