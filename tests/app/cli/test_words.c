/* Tests the small commands and the help: duet sampler prints PyTorch's indices, duet devices lists
 * the devices, and --help is consistent. tests/core/data tests the sampler itself. */
#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

/* A case to check by eye: 10 indices over 3 ranks in the order of the files, padded by the first
 * indices, or cut; and shuffled, as PyTorch 2.15's DistributedSampler does (set_epoch(2)). */
CliTest(cli_words, sampler_by_eye, 60) {
    static const struct {
        const char *words, *out;
    } table[] = {{"--rank 0 --no-shuffle", "0\n3\n6\n9\n"},
                 {"--rank 1 --no-shuffle", "1\n4\n7\n0\n"},
                 {"--rank 2 --no-shuffle", "2\n5\n8\n1\n"},
                 {"--rank 2 --no-shuffle --drop-last", "2\n5\n8\n"},
                 {"--dataset-size 7 --rank 0 --seed 3 --epoch 2", "1\n2\n3\n"},
                 {"--dataset-size 7 --rank 1 --seed 3 --epoch 2", "0\n6\n1\n"}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char *out = cli_output("sampler --dataset-size 10 --world-size 3 %s", table[i].words);
        cr_expect_str_eq(out, table[i].out, "%s", table[i].words);
        free(out);
    }
    cli_says(0, "!\n", "sampler --dataset-size 0 --world-size 3 --rank 0"); /* no lines */
}

CliTest(cli_words, devices, 60) {
    char *out = cli_output("devices");
    cr_expect(matches(out, "^cpu +1 to 64 emulated devices.*(avx512|avx2|generic) kernels") &&
                  matches(out, "1 device: [0-9.]+ [MG]iB of memory") &&
                  matches(out, "^cuda +(not built in|none: |[0-9]+ GPU)") && plain_lines(out),
              "%s", out);
    free(out);
}

/* ---- help ---- */

CliTest(cli_words, help_is_one_text, 60) {
    static const char *const ways[] = {"--help", "-h", "help", ""};
    static const char *const commands[] = {"demo",     "train",   "compare", "profile",
                                           "estimate", "scale",   "sampler", "collective",
                                           "run",      "devices", "doctor",  "manual"};
    struct cli first, c;
    cli_run(&first, "--help");
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        cli_run(&c, "%s", ways[i]);
        cr_expect(c.status == 0 && !*c.err && !strcmp(c.out, first.out), "'%s'", ways[i]);
        cli_free(&c);
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char line[32];
        snprintf(line, sizeof line, "^  %s ", commands[i]);
        cr_expect(matches(first.out, line), "%s is not in the help", commands[i]);
        for (int details = 0; details < 2; details++) {
            cli_run(&c, details ? "%s --help --details" : "%s --help", commands[i]);
            cr_expect(
                (c.status == 0 && !*c.err && strstr(c.out, commands[i]) && plain_lines(c.out)) ||
                    (details &&
                     (!strcmp(commands[i], "manual") || !strcmp(commands[i], "devices"))),
                "%s --help: %s", commands[i], c.out);
            cli_free(&c);
        }
    }
    cr_expect(plain_lines(first.out) && matches(first.out, "^exit status: 0 .*1 .*2 .*3 ") &&
              matches(first.out, "128\\+n ended by signal n$"));
    cli_says(0, "^duet [0-9]+\\.[0-9]+\\.[0-9]+$", "--version");
    cli_free(&first);
}

/* Help that does not reach its reader is a failure. */
CliTest(cli_words, help_to_a_full_disk, 60) {
    static const char *const words[] = {"--help",         "",       "--version", "train --help",
                                        "sampler --help", "devices"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char command[PATH_MAX + 256];
        snprintf(command, sizeof command, "%s %s >/dev/full 2>e", cli_program, words[i]);
        int status = system(command);
        char *errors = cli_read("e", NULL), *end = strchr(errors, '\n');
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "'%s': status %d", words[i],
                  status);
        cr_expect(!strncmp(errors, "duet: standard output: ", 23) && end && !end[1], "'%s': '%s'",
                  words[i], errors);
        free(errors);
    }
}

/* The seed is that of torch.manual_seed: 64 bits, and a negative one stands for 2^64 + seed. The
 * record has all its bits. */
CliTest(cli_words, seeds, 60) {
    static const char *const seeds[] = {"-1", "18446744073709551615", "9223372036854775808"};
    put_data(60, 20);
    for (int i = 0; i < 3; i++) {
        char text[64];
        cli_well("train --data-dir d --steps 1 --quiet --seed %s --save w%d --json j", seeds[i], i);
        char *json = cli_read("j", NULL);
        snprintf(text, sizeof text, "\"seed\": %s,", i < 2 ? seeds[1] : seeds[i]);
        cr_expect(strstr(json, text), "no %s in %.600s", text, json);
        free(json);
    }
    cr_expect(cli_same_file("w0", "w1") && !cli_same_file("w1", "w2"));
}

/* The defaults in the help are those in force: the files are the same with and without these
 * flags. */
CliTest(cli_words, defaults_as_stated, 120) {
    put_data(600, 20);
    cli_well("train --data-dir d --steps 2 --quiet --save a --log-loss al --json aj");
    cli_well("train --mode single --model lenet --data-dir d --epochs 10 --steps 2 "
             "--batch-size 256 --optimizer sgd --lr 0.2 --momentum 0 "
             "--weight-decay 0 --seed 0 --workers 1 --timeout 300 --quiet --save b "
             "--log-loss bl --json bj");
    cr_assert(cli_same_file("a", "b") && cli_same_file("al", "bl"));
    struct json *j = json_of("aj");
    cr_assert(json_int(j, "batch_size") == 256 && json_double(j, "lr") == 0.2 &&
              json_int(j, "epochs") == 10 && json_int(j, "virtual_devices") == 1);
    json_free(j);
    static const struct {
        const char *name, *numbers;
        double lr;
    } optimizers[] = {{"adam", "--lr 0.001 --weight-decay 0", 0.001},
                      {"adamw", "--lr 0.001 --weight-decay 0.01", 0.001},
                      {"adadelta", "--lr 1 --weight-decay 0", 1}};
    for (int i = 0; i < 3; i++) { /* each has its own numbers */
        cli_well("train --data-dir d --steps 2 --quiet --save a --optimizer %s --json aj",
                 optimizers[i].name);
        cli_well("train --data-dir d --steps 2 --quiet --save b --optimizer %s %s",
                 optimizers[i].name, optimizers[i].numbers);
        j = json_of("aj");
        cr_assert(cli_same_file("a", "b") && json_double(j, "lr") == optimizers[i].lr &&
                  !strcmp(json_text(j, "optimizer"), optimizers[i].name));
        json_free(j);
    }
    cli_well("train --mode ddp --data-dir d --steps 1 --quiet --json j");
    j = json_of("j");
    cr_assert(json_int(j, "devices") == 2 && json_int(j, "virtual_devices") == 2 &&
              !strcmp(json_text(j, "allreduce"), "auto"));
    json_free(j);
}
