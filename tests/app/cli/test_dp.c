/* Tests DataParallel's own options in the command: the record and the profile, PyTorch's warnings,
 * and refusals. test_same_bits.c compares the files of all its ways. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

/* Only the gradients differ between the two ways: S bytes into device 0 instead of 3 S. */
CliTest(cli_dp, profile_shows_what_sharding_saves, 120) {
    put_data(103, 20);
    static const char line[] =
        "profile --data-dir d --model mlp --batch-size 40 --steps 2 --devices 4 --json %s %s";
    cli_well(line, "a", "");
    cli_says(0, "\nDP, output device 1, sharded reduce: 4 devices|\nDDP: 4 devices", line, "b",
             "--dp-reduce sharded --output-device 1");
    struct json *a = json_of("a"), *b = json_of("b");
    int64_t outputs = 10 * 10 * 4, losses = 3 * 16;
    int64_t first = json_int(a, "dp_loss_in_forward/per_device/0/bytes_in"),
            sharded = json_int(b, "dp_loss_in_forward/per_device/0/bytes_in"),
            s = ((first - sharded) / 2 - losses) / 2; /* 2 steps; 3 S and the losses, less S */
    /* mlp of 784, 256 and 10, and pads */
    cr_expect(s >= 4 * 203530 && s < 4 * (203530 + 4 * 64), "S is %lld", (long long)s);
    cr_expect_eq(json_int(a, "dp/per_device/0/bytes_in") - json_int(b, "dp/per_device/0/bytes_in"),
                 2 * (2 * s + 3 * outputs - outputs), "outputs go to device 1, dL/dy comes back");
    json_free(a);
    json_free(b);
}

/* PyTorch's words, for losses that are scalars and for uneven devices. */
CliTest(cli_dp, warnings_come_once, 60) {
#define UNEVEN " --device-memory 64M,32M,64M"
    static const char scalars[] = "Was asked to gather along dimension 0, but all input tensors "
                                  "were scalars; will instead unsqueeze and return a vector.",
                      uneven[] = "You may want to exclude GPU 1 which has less than 75% of the "
                                 "memory or cores of GPU 0: 32 MiB and 64 MiB";
    static const char *const cases[][2] = {
        {"train --mode dp --loss-in-forward --virtual-devices off", scalars},
        {"train --mode dp" UNEVEN, uneven},
        {"profile" UNEVEN, uneven},
        {"compare" UNEVEN, uneven}};
    put_data(103, 20);
    for (int i = 0; i < 4; i++) {
        struct cli c;
        cli_run(&c, "%s --devices 3 --data-dir d --model mlp --batch-size 32 --steps 3",
                cases[i][0]);
        const char *said = strstr(c.err, cases[i][1]);
        cr_expect(c.status == 0 && said && !strstr(said + 1, cases[i][1]), "%s: %s", cases[i][0],
                  c.err);
        cli_free(&c);
    }
    /* 75 % is enough, and DDP does not warn */
    cli_well("train --mode dp --devices 3 --device-memory 64M,48M,64M --data-dir d --model mlp "
             "--steps 1");
    cli_well("train --mode ddp --devices 3 --device-memory 64M,32M,64M --data-dir d --model mlp "
             "--steps 1");
    cli_fails(1, "out of memory on device 2",
              "train --mode dp --devices 3 --data-dir d --steps 1 "
              "--device-memory 64M,64M,2M --batch-size 48 --quiet");
}

CliTest(cli_dp, refused, 60) {
    static const struct {
        const char *words, *args;
    } bad[] = {
        {"--output-device|2|0 to 1", "train --mode dp --output-device 2"},
        {"--output-device|0 to 0", "compare --devices 1 --output-device 1"},
        {"--output-device|'64'", "train --mode dp --output-device 64"},
        {"--output-device|ddp|--mode dp", "train --mode ddp --output-device 1"},
        {"--dp-reduce|'second'|first or sharded", "profile --dp-reduce second"},
        {"--dp-reduce|single|--mode dp", "train --dp-reduce sharded"},
        {"--dp-reduce|one device", "train --mode dp --devices 1 --dp-reduce sharded"},
        {"--device-memory|3 sizes for 2", "train --mode dp --device-memory 64M,32M,64M"},
        {"--device-memory|2 sizes for 1", "train --device-memory 64M,32M"},
        {"--device-memory|'1M'|2M", "train --mode dp --device-memory 64M,1M"},
        {"--device-memory|''", "train --mode dp --device-memory 64M,"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cli_fails(2, bad[i].words, "%s", bad[i].args);
}
