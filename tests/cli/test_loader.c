/* What the words of a loader do: batches by device, losses by interval, and the order of PyTorch's
 * DataLoader. */
#include "tests/cli/json.h"
#include "tests/cli/of_mode.h"

#define SMALL "--model simple --dataset random --samples 100 --quiet"

Test(cli_loader, batch_per_device, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
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

/* A line for steps 0, 4, 8 of each epoch, with the losses of the file; none elsewhere. */
Test(cli_loader, log_interval, .timeout = 60, .init = cli_folder_make, .fini = cli_folder_remove) {
    static const char *const modes[] = {"single", "dp", "ddp"};
    for (int m = 0; m < 3; m++) {
        struct cli c;
        cli_run(&c,
                "train --mode %s --model simple --dataset random --samples 100 --batch-size 10 "
                "--epochs 2 --log-interval 4 --log-loss l.csv",
                modes[m]);
        cr_assert(c.status == 0 && !*c.err, "%s", c.err);
        char *text = cli_read("l.csv", NULL), *line = strchr(text, '\n');
        int lines = 0;
        for (char *p = c.progress; (p = strstr(p, "training loss: ")); p++)
            lines++;
        cr_expect_eq(lines, 6, "%s", c.out);
        for (int step = 0; step < 20; step++, line = strchr(line + 1, '\n')) {
            char want[96];
            double loss = 0;
            sscanf(line + 1, "%*d,%*d,%lf", &loss);
            snprintf(want, sizeof want, "epoch: %d [%d/10 (%d%%)] training loss: %.6f\n", step / 10,
                     step % 10, step % 10 * 10, loss);
            cr_expect_eq(!!strstr(c.progress, want), step % 10 % 4 == 0, "%s in %s", want,
                         c.progress);
        }
        free(text);
        cli_free(&c);
    }
    cli_fails(2, "--log-interval", "train --log-interval 0 " SMALL);
    cli_fails(2, "--log-interval: no effect in duet profile: it only measures a few steps",
              "profile --log-interval 5");
}

/* --sampler random is another order than that of DistributedSampler, the same in single and dp. */
Test(cli_loader, sampler, .timeout = 60, .init = cli_folder_make, .fini = cli_folder_remove) {
    cli_well("train --virtual-devices 2 --batch-size 10 " SMALL " --epochs 2 --log-loss a");
    cli_well("train --virtual-devices 2 --batch-size 10 --sampler random " SMALL
             " --epochs 2 --log-loss b");
    cli_well("train --virtual-devices 2 --batch-size 10 --sampler random --mode dp " SMALL
             " --epochs 2 --log-loss c");
    cr_expect(!cli_same_file("a", "b") && cli_same_file("b", "c"));
    cli_fails(2, "--sampler: 'shuffled': there are distributed and random",
              "train --sampler shuffled");
    cli_fails(2, "--sampler: random: the ranks of DDP", "train --mode ddp --sampler random " SMALL);
    cli_fails(2, "--sampler: random: duet compare", "compare --sampler random " SMALL);
    cli_fails(2, "--sampler: random: --no-shuffle", "train --sampler random --no-shuffle " SMALL);
}
