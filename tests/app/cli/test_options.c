/* An option without effect is refused. For every option of a run there is a row here: a command in
 * which it can have no effect, or the reason why it always may. So a new option without either
 * fails. */
#include "cli/options/run_options.h"
#include "tests/app/cli/run.h"

static const struct row {
    const char *option;
    /* A command in which the option has no effect, and what the refusal says, separated by '|'; or
     * NULL, and the reason why there is no such command. */
    const char *command, *words;
} rows[] = {
    {"--mode", "compare --mode ddp", "in duet compare|use duet train"},
    {"--device", NULL, "every command runs on some device"},
    {"--devices", "train --devices 4", "in mode single|it trains on one device|--mode dp or ddp"},
    {"--virtual-devices", NULL, "every mode cuts its batch by it"},
    {"--device-memory", NULL, "every device has memory"},
    {"--model", NULL, "every run trains some model"},
    {"--params", "train --params 1M", "in duet train|duet estimate"},
    {"--buffers", "estimate --buffers 1K", "without --params|--params N"},
    {"--activations", "estimate --activations 1M", "without --params|--params N"},
    {"--outputs", "estimate --outputs 2x2", "without --params|--params N"},
    {"--classes", NULL, "every data set may be given more classes than its labels show"},
    {"--loss", NULL, "every model has a loss"},
    {"--mlp-hidden", "train --model lenet --mlp-hidden 64",
     "with model lenet|it belongs to mlp|--model mlp"},
    {"--dropout", "train --mode ddp --model resnet18 --dropout 0.1",
     "with model resnet18|no dropout|--model convnet"},
    {"--init", "train --model lenet --init d2l", "with model lenet|--model resnet18"},
    {"--sync-bn", "train --model lenet --sync-bn", "with model lenet|BatchNorm|--model resnet18"},
    {"--init-from", "estimate --init-from w", "in duet estimate|nothing runs"},
    {"--dataset", NULL, "every run needs data"},
    {"--shape", "train --dataset mnist --shape 1x32x32",
     "with data set mnist|--dataset synthetic or random"},
    {"--samples", "compare --samples 100", "with data set fashion-mnist|--dataset synthetic"},
    {"--data-dir", "train --dataset random --data-dir d", "with data set random|--dataset fashion"},
    {"--data-on", NULL, "every data set lies somewhere"},
    {"--no-shuffle", NULL, "every data set has an order"},
    {"--drop-last", NULL, "only the files say whether the last batch is full"},
    {"--workers", NULL, "where the device makes the batches, they still choose the samples"},
    {"--no-pin-memory", "train --data-on device --no-pin-memory",
     "with --data-on device|--data-on host"},
    {"--blocking-copies", "compare --data-on=device --blocking-copies",
     "with --data-on device|--data-on host"},
    {"--epochs", NULL, "every run has epochs"},
    {"--steps", NULL, "every run has steps"},
    {"--batch-size", "profile --batch-size 8 --find-max-batch",
     "beside --find-max-batch|leave one out"},
    {"--batch-per-device", "estimate --batch-per-device 8 --find-max-batch",
     "beside --find-max-batch|leave one out"},
    {"--find-max-batch", "train --find-max-batch", "in duet train|use duet profile or estimate"},
    {"--no-sync-steps", NULL, "every mode accumulates"},
    {"--optimizer", NULL, "every run updates its parameters"},
    {"--lr", NULL, "every optimizer has one"},
    {"--momentum", "train --momentum 0.9 --optimizer adam", "with optimizer adam|--optimizer sgd"},
    {"--weight-decay", NULL, "every optimizer has it"},
    {"--seed", NULL, "every run draws its initial weights"},
    {"--timeout", NULL, "every command waits for the processes that it starts"},
    {"--loss-in-forward", "train --mode ddp --loss-in-forward",
     "in mode ddp|DataParallel|--mode dp"},
    {"--output-device", "train --mode ddp --output-device 0", "in mode ddp|--mode dp"},
    {"--dp-reduce", "train --dp-reduce first", "in mode single|--mode dp"},
    {"--allreduce", "train --mode dp --allreduce ring",
     "in mode dp|it belongs to DDP|3 or more --devices"},
    {"--bucket-cap-mb", "train --mode dp --bucket-cap-mb 1", "in mode dp|--mode ddp"},
    {"--no-broadcast-buffers", "train --mode ddp --no-broadcast-buffers",
     "with model lenet|no buffers|--model resnet18"},
    {"--no-overlap", "train --mode dp --no-overlap", "in mode dp|--mode ddp"},
    {"--join", NULL, "in every mode it uses each sample once"},
    {"--find-unused-parameters", "train --find_unused_parameters", "in mode single|--mode ddp"},
    {"--gpu", "estimate --find-max-batch --device-memory 1G --gpu v100", "beside --find-max-batch"},
    {"--machine", "profile --machine dgx1", "without --gpu|--gpu NAME"},
    {"--link", "profile --link pcie3", "without --gpu|--gpu NAME"},
    {"--host", "train --host duet", "without --gpu|--gpu NAME"},
    {"--what-if", "scale --what-if gil=off", "without --gpu|--gpu NAME"},
    {"--cuda-math", "train --device cpu --cuda-math own", "on device cpu|GPUs|--device cuda"},
    {"--tf32", "compare --device cpu --tf32", "on device cpu|GPUs|--device cuda"},
    {"--no-graph", "train --device cpu --no-graph", "on device cpu|GPUs|--device cuda"},
    {"--save", "profile --save w", "in duet profile|use duet train"},
    {"--checkpoint", "compare --checkpoint c", "in duet compare|use duet train"},
    {"--checkpoint-every", "train --checkpoint-every 2", "without --checkpoint|--checkpoint FILE"},
    {"--resume", "profile --resume c", "in duet profile|use duet train"},
    {"--log-loss", "scale --log-loss l", "in duet scale|use duet train"},
    {"--json", NULL, "every command writes its results"},
    {"--trace", "scale --trace t", "in duet scale|use duet train"},
    {"--tensorboard", "profile --tensorboard d", "in duet profile|use duet train"},
    {"--report", "scale --report r.html", "in duet scale|use duet train"},
    {"--pictures", "scale --pictures d", "in duet scale|use duet train"},
    {"--as", "train --as pytorch", "in duet train|use duet profile or estimate"},
    {"--details", "train --details", "in duet train|use duet profile or estimate"},
    {"--quiet", NULL, "every command prints"},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Commands that need an option more than one rule for. */
static const struct row more[] = {
    {"--no-graph", "profile --device auto --no-graph", "in duet profile"},
    {"--no-graph", "train --device cuda --no-graph --trace t", "beside --trace"},
    {"--no-graph", "train --device cuda --no-graph --report t", "beside --report"},
    {"--no-graph", "train --device cuda --no-graph --pictures t", "beside --pictures"},
    {"--loss-in-forward", "profile --loss-in-forward", "in duet profile|leave it out"},
    {"--dp-reduce", "compare --model resnet18 --sync-bn --dp-reduce sharded", "beside --sync-bn"},
    {"--no-broadcast-buffers", "train --mode dp --model resnet18 --no-broadcast-buffers",
     "in mode dp"},
    {"--init", "train --model resnet18 --init d2l --init-from w", "beside --init-from"},
    {"--init", "train --model resnet18 --init d2l --resume c", "beside --resume"},
    {"--log-loss", "demo --log-loss l", "in duet demo"},
    {"--trace", "estimate --trace t", "in duet estimate|nothing runs"},
    {"--tensorboard", "estimate --tensorboard d", "in duet estimate|nothing runs"},
    {"--no-graph", "estimate --no-graph", "in duet estimate|nothing runs"},
    {"--loss-in-forward", "estimate --loss-in-forward", "in duet estimate|leave it out"},
};
enum { MORE = sizeof more / sizeof *more };

Test(cli_flags, each_has_a_rule_or_a_reason, .timeout = 60) {
    int found = 0;
    for (const struct option *option = run_options; option->help; option++) {
        int i = 0;
        if (!option->name) continue;
        found++;
        while (i < ROWS && strcmp(rows[i].option, option->name))
            i++;
        cr_expect(i < ROWS, "%s: give it a row: a command without effect, or a reason",
                  option->name);
    }
    cr_expect_eq(found, ROWS, "%d options, %d rows", found, ROWS);
}

Test(cli_flags, without_effect_they_are_refused, .timeout = 120, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    for (int i = 0; i < ROWS + MORE; i++) {
        const struct row *row = i < ROWS ? &rows[i] : &more[i - ROWS];
        char words[256];
        if (!row->command) continue;
        snprintf(words, sizeof words, "duet: %s: no effect|%s|leave", row->option, row->words);
        cli_fails(2, words, "%s", row->command);
    }
}

/* What may have an effect is not refused: the commands that train in all modes take what any of
 * them can use, and `auto` may find a GPU. The missing folder is what ends them. */
Test(cli_flags, with_an_effect_they_are_not, .timeout = 60, .init = cli_folder_make,
     .fini = cli_folder_remove) {
    static const char *const lines[] = {
        "compare --devices 2 --output-device 1 --bucket-cap-mb 1 --allreduce naive",
        "profile --dp-reduce sharded --no-overlap --find-unused-parameters",
        "demo --loss-in-forward",
        "compare --model resnet18 --sync-bn --no-broadcast-buffers",
        "train --device auto --no-graph --tf32 --cuda-math own",
        "train --devices 1",
        "scale --weight-decay 0.1 --devices 1,2",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        cli_fails(1, "missing", "%s --data-dir missing --steps 1", lines[i]);
}

Test(cli_flags, nearest_words, .timeout = 60, .init = cli_folder_make, .fini = cli_folder_remove) {
    static const struct {
        const char *words, *command;
    } table[] = {
        {"unknown option: --epoch: did you mean --epochs?", "train --epoch 3"},
        {"unknown option: --lerning-rate: did you mean --lr?", "train --lerning-rate 0.1"},
        {"unknown option: --learning_rate=1: did you mean --lr?", "train --learning_rate=1"},
        {"unknown option: --num-workers: did you mean --workers?", "compare --num-workers 2"},
        {"unknown option: --colour: see", "train --colour red"},
        {"unknown command: trian: did you mean train?", "trian"},
        {"--optimizer: 'adm': there are sgd, adadelta, adam and adamw: did you mean adam?",
         "train --optimizer adm"},
        {"--optimizer: 'rmsprop': there are sgd, adadelta, adam and adamw\n",
         "train --optimizer rmsprop"},
        {"model: 'lenett'|did you mean lenet?", "train --model lenett"},
        {"--allreduce: 'rign'|did you mean ring?", "train --mode ddp --allreduce rign"},
        {"--dataset: 'fashion'|did you mean fashion-mnist?", "train --dataset fashion"},
        {"--mode: 'ddpp': there are single, dp and ddp: did you mean ddp?", "train --mode ddpp"},
        {"--device: 4: there are auto, cpu and cuda: did you mean --devices 4?",
         "train --device 4"},
        {"--device: 'cdua'|did you mean cuda?", "train --device cdua"},
        {"--device: 'gpu': there are auto, cpu and cuda", "train --device gpu"},
        {"--device: 'cup'|did you mean cpu?", "doctor --device cup"},
        {"--data-on: 'hots'|did you mean host?", "train --data-on hots"},
        {"--cuda-math: 'libary'|did you mean library?", "train --cuda-math libary"},
        {"--loss: 'cross_entropy'|did you mean cross-entropy?", "train --loss cross_entropy"},
        {"--dp-reduce: 'shard'|did you mean sharded?", "train --mode dp --dp-reduce shard"},
        {"--init: 'd2'|did you mean d2l?", "train --model resnet18 --init d2"},
        {"--scale-lr: 'liner'|did you mean linear?", "scale --batch-per-device 8 --scale-lr liner"},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        cli_fails(2, table[i].words, "%s", table[i].command);
}
