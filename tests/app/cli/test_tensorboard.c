/* Tests --tensorboard: the event files have the values of --json, and they grow during the run. A
 * run that fails before its first step leaves none. */
#include "tests/app/cli/tensorboard.h"

#include "tests/app/cli/data.h"
#include "tests/app/cli/json.h"

#define TINY "--model mlp --mlp-hidden 4 --data-dir d --batch-size 8 "

/* One value for each step or epoch: `list` of the run's results. */
static void same_list(const struct events *all, const char *tag, const struct json *list, int first,
                      int apart) {
    int i = 0;
    cr_expect_eq(events_count(all, tag), list->count, "%s: %d", tag, events_count(all, tag));
    for (const struct json *x = list->child; x; x = x->next, i++) {
        const struct event *e = event_of(all, tag, i);
        cr_assert_not_null(e, "%s has %d values", tag, i);
        cr_expect(e->value == (float)x->number && e->step == first + i * apart,
                  "%s: %d: %g at step %d", tag, i, (double)e->value, (int)e->step);
    }
}

static void check_run(const char *folder, const struct json *run) {
    struct events all = events_of(folder, 1, 0);
    int per_epoch = (int)json_int(run, "steps_per_epoch");
    cr_expect_eq(all.rest, 0);
    same_list(&all, "Loss/train", json_at(run, "losses"), 0, 1);
    same_list(&all, "Accuracy/test", json_at(run, "accuracy"), per_epoch, per_epoch);
    same_list(&all, "Loss/valid", json_at(run, "valid_loss"), per_epoch, per_epoch);
    same_list(&all, "Learning_rate", json_at(run, "epoch_lr"), per_epoch, per_epoch);
    cr_expect_eq(events_count(&all, "Loss/train_epoch"), 2);
    cr_expect_geq(events_count(&all, "Speed/samples_per_second"), 2);
    for (int d = 0; d < (int)json_int(run, "devices"); d++) {
        char tag[64];
        snprintf(tag, sizeof tag, "Memory/device_%d_peak_MiB", d);
        const struct event *e = event_of(&all, tag, 1);
        cr_assert_not_null(e, "%s: no %s", folder, tag);
        cr_expect_eq(e->value, (float)(json_double(run, "per_device/%d/memory_peak", d) / 0x1p20),
                     "%s: %s", folder, tag);
    }
    for (int i = 1; i < all.count; i++)
        cr_expect(all.event[i].wall_time >= all.event[i - 1].wall_time &&
                  all.event[i].wall_time > 1.7e9);
    free(all.event);
}

/* docs/json.md names every tag that is written, with D for the number of a device, and no other. */
static void check_page(const struct events *all) {
    char path[PATH_MAX + 64], tag[80];
    int named = 0, known = 0;
    snprintf(path, sizeof path, "%s/docs/json.md", cli_root_path);
    char *text = cli_read(path, NULL), *section = strstr(text, "\n## TensorBoard\n");
    cr_assert_not_null(section);
    for (char *row = section; (row = strstr(row, "\n| `")); row += 4, named++) {
        snprintf(tag, sizeof tag, "%.*s", (int)strcspn(row + 4, "`"), row + 4);
        char *device = strstr(tag, "device_D");
        if (device) device[7] = '0';
        int written = events_count(all, tag);
        cr_expect(written > 0, "%s is not written", tag);
        known += written;
    }
    cr_expect_eq(named, 8);
    for (int i = 0; i < all->count; i++) /* those of the other devices, and the version */
        known += strstr(all->event[i].tag, "device_1") != NULL || !*all->event[i].tag;
    cr_expect_eq(known, all->count, "%d events of %d have a tag of the page", known, all->count);
    free(text);
}

CliTest(cli_tensorboard, holds_what_json_holds, 120) {
    static const char *const modes[] = {"single", "dp", "ddp"};
    put_data(24, 8);
    cli_well("compare " TINY "--epochs 2 --devices 2 --tensorboard new/t --json j");
    struct json *root = json_of("j");
    for (int m = 0; m < 3; m++) {
        char folder[32];
        snprintf(folder, sizeof folder, "new/t/%s", modes[m]);
        check_run(folder, json_at(root, modes[m]));
    }
    struct events all = events_of("new/t/dp", 1, 0);
    check_page(&all);
    free(all.event);
    json_free(root);
}

CliTest(cli_tensorboard, scale_has_a_folder_for_each_run, 120) {
    put_data(24, 8);
    cli_well("scale " TINY "--steps 1 --devices 1,2 --lr 0.1 --tensorboard t --json j");
    struct json *root = json_of("j");
    for (const struct json *run = json_at(root, "runs")->child; run; run = run->next) {
        char folder[64];
        snprintf(folder, sizeof folder, "t/%s", json_text(run, "name"));
        struct events all = events_of(folder, 1, 0);
        same_list(&all, "Loss/train", json_at(run, "losses"), 0, 1);
        free(all.event);
    }
    json_free(root);
}

/* A resumed run adds a file, whose steps count on. */
CliTest(cli_tensorboard, resumed, 120) {
    put_data(48, 8);
    cli_well("train " TINY "--steps 2 --checkpoint c --tensorboard t");
    cli_well("train " TINY "--steps 5 --resume c --tensorboard t/");
    struct events one = events_of("t", 2, 0), other = events_of("t", 2, 1);
    const struct event *begin = event_of(&one, "Loss/train", 0);
    cr_assert_not_null(begin);
    /* If both are of one second, their names are in the order of the process ids as text. */
    const struct events *first = begin->step == 0 ? &one : &other,
                        *second = begin->step == 0 ? &other : &one;
    const struct event *a = event_of(first, "Loss/train", 1),
                       *b = event_of(second, "Loss/train", 0);
    cr_assert(a && b && events_count(first, "Loss/train") == 2);
    cr_expect(a->step == 1 && b->step == 2, "steps %d and %d", (int)a->step, (int)b->step);
    /* and says from which step on the first one no longer counts */
    const struct event *start = event_of(second, "START", 0);
    cr_expect(start && start == &second->event[1] && start->step == 3);
    cr_expect_eq(events_count(first, "START"), 0);
    free(one.event), free(other.event);
}

/* What was written stays when the run is killed, and a run that begins no step leaves nothing. */
CliTest(cli_tensorboard, interrupted_and_failed, 120) {
    struct cli c;
    char path[512];
    put_data(48, 8);
    cli_start(&c, "train " TINY "--epochs 100000 --tensorboard t");
    struct stat about = {.st_size = 0};
    for (int64_t deadline = deadline_after(CLI_SECONDS);
         now_ns() < deadline && about.st_size < 9999; cli_pause()) {
        DIR *folder = opendir("t");
        for (struct dirent *d; folder && (d = readdir(folder));)
            if (*d->d_name != '.') {
                snprintf(path, sizeof path, "t/%.255s", d->d_name);
                stat(path, &about);
            }
        if (folder) closedir(folder);
    }
    kill(c.pid, SIGKILL);
    cli_wait(&c);
    cli_free(&c);
    struct events all = events_of("t", 1, 0);
    cr_expect_geq(events_count(&all, "Loss/train"), 50);
    free(all.event);
    cli_fails(1, "missing", "train --data-dir missing --steps 1 --tensorboard new/folder");
    cli_fails(2, "no effect in duet profile", "profile --tensorboard t");
    if (!access("/sys/kernel", F_OK)) { /* a bare root may come without /sys */
        /* refused by the kernel, to root too: not "No such file" */
        cli_says(1, "/sys/duet: the folder cannot be made: |!No such file",
                 "train " TINY "--tensorboard /sys/duet");
    }
    cr_assert_eq(symlink("nowhere", "broken"), 0);
    cli_fails(1, "d/train-images-idx3-ubyte/t",
              "train " TINY "--tensorboard d/train-images-idx3-ubyte/t");
    cli_fails(1, "broken", "train " TINY "--tensorboard broken");
}
