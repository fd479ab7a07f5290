/* Tests duet scale: the table, its --json, the growth of batch and learning rate, and refusals. */
#include "cli/results/scale_table.h"
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

enum { PICTURES = 130 };

/* The tutorial's training, without its minutes per epoch: its seconds have a column. Devices that
 * share GPUs are named, and so is the best of several rates. */
CliTest(cli_scale, the_columns_of_long_runs, 60) {
    static double losses[] = {0.0512345678}, accuracy[4][1], valid[4][1];
    struct scale_row rows[4] = {{.bits = SCALE_BITS_FIRST}};
    struct scale s = {.rows = rows, .count = 4, .config.rates = 1};
    s.config.run.update.optimizer = OPTIMIZER_ADADELTA;
    for (int i = 0; i < 4; i++) {
        struct run_record *r = &rows[i].run;
        *r = (struct run_record){.devices = 1 << i, .mode = MODE_DDP, .epochs = 1, .lr = 0.000125};
        strcpy(r->model, "convnet");
        r->batch_size = TEXT_BATCH, r->train_samples = 60000, r->training_seconds = 12.345678;
        r->steps = 1, r->losses = losses, r->epoch_count = 1, r->gpus = i < 2 ? 1 << i : 4;
        r->accuracy = accuracy[i], accuracy[i][0] = 0.9 + 0.01 * i;
        r->valid_loss = valid[i], valid[i][0] = i < 2 ? 0.25 : 34.56789;
        rows[i].bits = i ? SCALE_BITS_EQUAL : SCALE_BITS_FIRST, rows[i].speed_up = 1.5 * i + 1;
    }
    cr_assert_not_null(freopen("table", "w", stdout));
    for (int i = 0; i < 4; i++)
        scale_table_row(&s, i);
    scale_table_notes(&s);
    s.config.rates = 2; /* two device counts then */
    accuracy[3][0] = accuracy[2][0];
    scale_table_notes(&s);
    char *text = cli_read("table", NULL);
    cr_expect(strstr(text, "\n      1   128    128 0.000125   12.35  1.00 0.05123 0.25000 0.9000  "
                           "first  30 s\n"));
    cr_expect(strstr(text, "  34.568 0.9300  equal  18 s\n"));
    cr_expect(strstr(text, "\n8 devices on 4 GPUs: "));
    cr_expect(strstr(text, "\n2 devices: best test accuracy 0.9100 at learning rate 0.000125\n"
                           "4 devices: best test accuracy 0.9200 at learning rate 0.000125, as at "
                           "1 other\n"));
    for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
        cr_expect_leq(strcspn(line, "\n"), 80, "%.90s", line);
    free(text);
}

/* The same global batch on 1, 2 and 4 devices: equal bits, as the JSON's losses say too. */
CliTest(cli_scale, the_global_batch_stays, 120) {
    put_data(PICTURES, 20);
    cli_says(0,
             "^mlp on fashion-mnist, sgd, 2 epochs, DDP, cpu devices$|"
             "^ +1 +24 +24 +0.2 +[0-9.e-]+ +1.00( +[0-9.]+){2} +[01]\\.[0-9]{4} +first$|"
             "^ +2 +12 +24 +0.2( +[0-9.e-]+){4} +[01]\\.[0-9]{4} +equal$|"
             "^2 runs are equal, to the bit, to the first with the same batch and rate|!text",
             "scale --data-dir d --model mlp --mlp-hidden 20 --batch-size 24 --epochs 2 "
             "--devices 1,2,4 --json j");
    struct json *j = json_of("j");
    const struct json *rows = json_at(j, "runs");
    cr_assert_eq(rows->count, 3);
    int devices = 1;
    for (const struct json *row = rows->child; row; row = row->next, devices *= 2) {
        cr_expect(json_int(row, "devices") == devices && json_int(row, "virtual_devices") == 4 &&
                  json_int(row, "batch_size") == 24);
        cr_expect_str_eq(json_text(row, "bits"), devices == 1 ? "first" : "equal");
        const struct json *a = json_at(rows->child, "losses")->child,
                          *b = json_at(row, "losses")->child;
        for (; a && b; a = a->next, b = b->next)
            cr_expect_eq(a->number, b->number);
        cr_expect(!a && !b);
        cr_expect_gt(json_double(row, "speed_up"), 0);
    }
    cr_expect_eq(devices, 8);
    json_free(j);
}

/* Exercises 1 and 2 of d2l 13.5: a batch for each device, and a list of rates. */
CliTest(cli_scale, the_batch_grows_with_the_devices, 120) {
    int k = 0;
    put_data(PICTURES, 20);
    cli_says(0,
             "^1 device: best test accuracy [01]\\.[0-9]{4} at learning rate 0|"
             "^4 devices: best test accuracy |"
             "^bits: no two runs have the same batch and learning rate$",
             "scale --data-dir d --model mlp --mlp-hidden 20 --batch_per_device 16 --epochs 1 "
             "--devices=1,2,4 --lr 0.1,0.3 --json j");
    struct json *j = json_of("j");
    for (const struct json *row = json_at(j, "runs")->child; row; row = row->next, k++) {
        int devices = 1 << k / 2;
        cr_expect(json_int(row, "devices") == devices &&
                  json_int(row, "batch_size") == 16 * devices &&
                  json_double(row, "batch_per_device") == 16 &&
                  json_double(row, "lr") == (k % 2 ? 0.3 : 0.1));
        cr_expect_str_eq(json_text(row, "bits"), "-");
    }
    cr_expect_eq(k, 6);
    json_free(j);
}

/* Without a model it is d2l's training. MNIST is looked for, but not where --data-dir says. */
CliTest(cli_scale, the_defaults_are_those_of_the_text, 120) {
    put_data(PICTURES, 20);
    cli_well("scale --data-dir d --devices 1,2 --steps 1 --json j");
    struct json *j = json_of("j");
    const struct json *run = json_at(j, "runs")->child;
    cr_expect_str_eq(json_text(run, "model"), "convnet");
    cr_expect_str_eq(json_text(run, "optimizer"), "adadelta");
    cr_expect_str_eq(json_text(run, "mode"), "ddp");
    cr_expect(json_double(run, "lr") == 0.5 && json_int(run, "batch_size") == 128 &&
              json_int(run, "epochs") == 1);
    json_free(j);
    cli_well("scale --data-dir d --devices 2 --model convnet --optimizer sgd --steps 1 --json j");
    j = json_of("j");
    cr_expect_eq(json_double(json_at(j, "runs")->child, "lr"), 0.2, "sgd's own");
    json_free(j);
}

CliTest(cli_scale, devices_that_do_not_fit_one_another, 120) {
#define SMALL "scale --data-dir d --model mlp --mlp-hidden 9 --epochs 1 "
    put_data(PICTURES, 20);
    cli_says(0,
             "^ +3 +8 +24 .* -$|!equal to the first|"
             "^bits of 3 devices, lr 0.2: -: 2 virtual devices against 3",
             SMALL "--batch-size 24 --mode dp --devices 2,3");
    cli_says(0, "^ +2 12-13 +25 .* -$|^bits of 2 devices, lr 0.2: -: virtual devices are off",
             SMALL "--batch-size 25 --devices 1,2 --virtual-devices off");
    /* the rate is too large: that is reported but no failure, and equal NaNs prove nothing */
    cli_says(0,
             "^duet: 2 devices, lr 1e\\+30: loss: not finite|^ +2 +12 +24 .* -$|"
             "^bits of 2 devices, lr 1e\\+30: -: losses that are not finite",
             SMALL "--batch-size 24 --devices 1,2 --lr 1e30");
}

CliTest(cli_scale, what_is_refused, 120) {
    static const struct {
        const char *says, *words;
    } cases[] = {
        {"--devices|'0'|1 to 64", "--devices 1,0"},
        {"--devices|no value", "--devices"},
        {"--lr|'x' in '0.1,x'", "--lr 0.1,x"},
        {"--devices: 2|twice", "--devices 2,1,2"},
        {"--lr: 0.1|twice", "--lr 0.1,0.10"},
        {"--lr|at most 16", "--lr 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1"},
        {"--batch-per-device|'0'", "--batch-per-device=0"},
        {"--batch-size|4|8 devices", "--batch-size 4"},
        {"--mode|single has one device|dp or ddp", "--mode single"},
        {"--save|duet scale|duet train", "--save w"},
        {"--trace|duet scale|duet train", "--trace t"},
        {"--json: the value is empty", "--json="},
        {"unknown option|--scale", "--scale-l linear"},
    };
    put_data(PICTURES, 20);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cli_fails(2, cases[i].says, "scale --data-dir d %s", cases[i].words);
    cr_expect_eq(cli_files(), 2, "a refused command left a file");
    cli_fails(1, "no-such-folder",
              "scale --data-dir d --devices 1 --steps 1 --json no-such-folder/v");
    cli_well("scale --help");
}
