/* What the words of a loader do: batches by device. */
#include "tests/app/cli/json.h"
#include "tests/app/cli/of_mode.h"

#define SMALL "--model simple --dataset random --samples 100 --quiet"

CliTest(cli_loader, batch_per_device, 60) {
    static const struct {
        const char *mode;
        int devices, batch;
    } cases[] = {{"single", 4, 5}, {"dp", 4, 20}, {"ddp", 3, 15}};
    for (int i = 0; i < 3; i++) {
        char devices[32];
        snprintf(devices, sizeof devices, "--devices %d", cases[i].devices);
        cli_well("train --mode %s %s --batch-per-device 5 --epochs 1 " SMALL " --json j",
                 cases[i].mode, of_mode(cases[i].mode, devices));
        struct json *j = json_of("j");
        cr_expect_eq(json_int(j, "batch_size"), cases[i].batch, "%s", cases[i].mode);
        json_free(j);
    }
    cli_well("compare --devices 2 --batch_per_device=5 --epochs 1 " SMALL " --json j");
    struct json *j = json_of("j");
    cr_expect(json_int(j, "single/batch_size") == 10 && json_int(j, "ddp/batch_size") == 10);
    json_free(j);
    cli_fails(2, "--batch-per-device: 5: --batch-size 10 is given too",
              "train --batch-size 10 --batch-per-device 5 " SMALL);
    cli_fails(2, "--batch-per-device: 9000000 on 2 devices: give at most 8388608",
              "train --mode dp --batch-per-device 9000000 " SMALL);
    cli_fails(2, "--batch-per-device", "train --batch-per-device 0 " SMALL);
}
