/* Runs scripts/download_data.sh in a separate folder, on Debian's copy of the files instead of the
 * network. */
#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "data/dataset.h"
#include "tests/harness/harness.h"

#define SOURCE "/usr/share/datasets/fashion-mnist"

static char folder[] = "/tmp/duet-test-XXXXXX";

static int shell(const char *format, const char *argument) {
    char command[512];
    snprintf(command, sizeof command, format, folder, argument);
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void scratch_make(void) {
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(shell("mkdir %s/scripts%s", ""), 0);
    cr_assert_eq(shell("cp scripts/download_data.sh %s/scripts/%s", ""), 0);
}
static void scratch_remove(void) {
    cr_assert_eq(shell("rm -rf %s%s", ""), 0);
}

/* Runs a command such as `DUET_DATA_URL=URL scripts/download_data.sh SET` in the scratch folder. */
static int download(const char *arguments) {
    return shell("cd %s && env %s >/dev/null 2>&1", arguments);
}

static const char *cannot_run(void) {
    if (system("command -v curl >/dev/null && command -v sha256sum >/dev/null"))
        return "no curl or sha256sum";
    return access(SOURCE, F_OK) ? SOURCE " is not there: apt install dataset-fashion-mnist" : NULL;
}

Test(download, checks_and_unpacks, .timeout = 60, .init = scratch_make, .fini = scratch_remove) {
    char place[128];
    struct dataset set;
    if (cannot_run()) cr_skip_test("%s", cannot_run());
    const char *good = "DUET_DATA_URL=file://" SOURCE " scripts/download_data.sh fashion-mnist";
    cr_assert_eq(download(good), 0);
    snprintf(place, sizeof place, "%s/datasets/fashion-mnist", folder);
    for (int train = 0; train < 2; train++) {
        cr_assert_eq(dataset_open(&set, "fashion-mnist", place, train), OK, "%s", error_message());
        cr_assert_eq(set.count, train ? 60000 : 10000);
        dataset_free(&set);
    }
    cr_assert_eq(shell("echo x >> %s/datasets/fashion-mnist/%s", "t10k-labels-idx1-ubyte"), 0);
    cr_assert_eq(download(good), 0); /* the damaged file is fetched again */
    cr_assert_eq(dataset_open(&set, "fashion-mnist", place, 0), OK, "%s", error_message());
    dataset_free(&set);
    cr_assert_eq(shell("test $(ls -A %s/datasets/fashion-mnist | wc -l) = 4%s", ""), 0,
                 "something is left behind");
    cr_assert_eq(download("DUET_DATA_URL=file:///nowhere scripts/download_data.sh fashion-mnist"),
                 0, "all is there");
}

Test(download, leaves_nothing_of_a_failure, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    if (cannot_run()) cr_skip_test("%s", cannot_run());
    cr_assert_eq(download("DUET_DATA_URL=file://" SOURCE " scripts/download_data.sh mnist"), 1,
                 "the wrong pictures");
    cr_assert_eq(shell("test ! -e %s/datasets%s", ""), 0);
    cr_assert_eq(download("DUET_DATA_URL=file:///nowhere scripts/download_data.sh mnist"), 1,
                 "no such place");
    cr_assert_eq(shell("for f in " SOURCE "/*; do head -c 3000 $f > %s/${f##*/}%s; done", ""), 0);
    cr_assert_eq(download("DUET_DATA_URL=file://$PWD scripts/download_data.sh fashion-mnist"), 1,
                 "cut short");
    cr_assert_eq(shell("test ! -e %s/datasets%s", ""), 0);
    cr_assert_eq(download("scripts/download_data.sh cifar"), 1);
}
