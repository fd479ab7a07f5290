/* Emulated devices that CUDA_VISIBLE_DEVICES chooses, by their numbers and in its order. */
#include <unistd.h>

#include "tests/duet/shared.h"

/* The memory of an emulated device is a file; its name has the device's number of the machine. */
static int has_memory_of(int number) {
    char command[100];
    snprintf(command, sizeof command, "ls -l /proc/%d/fd | grep -q 'memfd:duet-device-%d '",
             (int)getpid(), number);
    return system(command) == 0;
}

Test(api_parts, cuda_visible_devices_chooses_emulated_devices, .timeout = 30) {
    static const char *const all[] = {"", "-1", "GPU-1ff"}, *const bad[] = {"1,1", "0,x", "0,,1",
                                                                            "64"};
    duet_device *device, *pair[2];
    if (!access("/dev/nvidiactl", F_OK)) cr_skip_test("the variable speaks of this machine's GPUs");
    for (int i = 0; i < 3; i++) {
        setenv("CUDA_VISIBLE_DEVICES", all[i], 1);
        cr_expect_eq(duet_device_count("cpu"), DUET_MAX_DEVICES, "%s", all[i]);
    }
    for (int i = 0; i < 4; i++) {
        setenv("CUDA_VISIBLE_DEVICES", bad[i], 1);
        MUST_FAIL(duet_device_open(&device, "cpu", 0, 1 << 22), DUET_USAGE, bad[i]);
        cr_expect_eq(duet_device_count("cpu-late"), 0);
    }
    setenv("CUDA_VISIBLE_DEVICES", "5,2,-1,7", 1);
    cr_assert_eq(duet_device_count("cpu"), 2);
    MUST(duet_device_open(&device, "cpu", 1, 1 << 22));
    cr_assert_str_eq(duet_device_name(device), "cpu(1)");
    cr_assert(has_memory_of(2) && !has_memory_of(1) && !has_memory_of(5));
    duet_devices_close(&device, 1);
    MUST(duet_devices_open(pair, 2, "cpu", 1 << 22));
    cr_assert(has_memory_of(5) && has_memory_of(2));
    duet_devices_close(pair, 2);
    MUST_FAIL(duet_device_open(&device, "cpu", 2, 1 << 22), DUET_USAGE,
              "CUDA_VISIBLE_DEVICES=5,2,-1,7 shows 2 devices: ask for fewer");
}
