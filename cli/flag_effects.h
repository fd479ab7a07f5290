/* Where flags have an effect. A flag that surely has none in what was asked is refused with the
 * reason, for its user believes that it does something.
 *
 * Every row of the table of flags ends with one of the rules below, which is asked once the whole
 * command line is read, and only for flags that were given. A new flag takes `always`, or the rule
 * that it shares with others, or a new one here; tests/cli/test_flags.c then wants a command in
 * which it is refused. What may have an effect passes: `--device auto` may find a GPU. */
#ifndef CLI_FLAG_EFFECTS_H
#define CLI_FLAG_EFFECTS_H

#include "train/run.h"

struct flag;

/* What the command is about to do. */
struct asked {
    const struct run_config *config;
    const char *command; /* "train", "scale", "compare", ... */
    unsigned modes;      /* bit m: it trains in enum run_mode m */
};

/* OK: the flag may have an effect. ERR_USAGE: it has none; the text is
 *     FLAG: no effect WHERE: WHY: give WHAT, or leave it out */
typedef int flag_effect(const struct flag *flag, const struct asked *asked);

flag_effect always;

/* By command. One run: train; scale trains in one mode, but several times. */
flag_effect by_train, by_train_or_scale, by_all_but_scale, by_all_but_profile, by_all_but_estimate,
    by_estimate, by_profile_or_estimate;

/* By mode. Commands that train in several modes take what any of them can use. */
flag_effect in_dp, in_ddp, on_several_devices;
flag_effect in_dp_with_threads; /* what threads of one process share; ranks share nothing */
flag_effect in_dp_one_way; /* profile runs DP both ways: with the loss in forward and without */
flag_effect in_ddp_with_buffers; /* DDP, of a model that has buffers */

/* By kind of device. Steps are replayed as graphs where no times are taken. */
flag_effect on_gpus, with_graphs;

/* By model and loss. */
flag_effect with_mlp, with_dropout, with_buffers, of_scores;
flag_effect of_sync_bn;       /* with buffers, and not in DP alone */
flag_effect of_first_weights; /* resnet18, whose weights come from no file */

/* By data set: those that are made, and those in files; and batches that come from the host. */
flag_effect of_made_data, of_files, from_the_host;

/* By optimizer. */
flag_effect by_sgd, by_adam, by_adadelta, by_adadelta_or_adam;

/* By another flag. */
flag_effect of_runs, where_no_batch_is_sought, beside_params, beside_momentum, beside_lr_step,
    beside_save, beside_checkpoint;

/* Where progress is printed. */
flag_effect with_progress, with_dashboard;

#endif
