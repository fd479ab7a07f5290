// A program in C++ on the installed library, for tests/examples/test_example.c.
#include <duet.h>
#include <cstdio>
#include <vector>

int main() {
    duet_device *device = nullptr;
    duet_tensor *a = nullptr, *b = nullptr;
    const int shape[] = {2, 3};
    std::vector<float> x(6, 2.5f), y(6);
    int code = duet_devices_open(&device, 1, "cpu", 1 << 20);
    if (!code) code = duet_tensor_create(&a, device, DUET_F32, 2, shape, x.data());
    if (!code) code = duet_tensor_to(&b, a, device);
    if (!code) code = duet_tensor_add(b, a);
    if (!code) code = duet_tensor_read(b, y.data());
    if (code) std::puts(duet_error());
    duet_tensor_free(a), duet_tensor_free(b);
    duet_devices_close(&device, 1);
    return code ? duet_exit_status(code) : y[5] == 5 ? 0 : 3;
}
