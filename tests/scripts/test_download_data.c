/* scripts/download_data.sh, run in a folder of its own on Debian's copy of the files instead of the
 * network. */
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "data/dataset.h"
#include "data/fetch.h"
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

/* ---- on first use ---- */

static int is_there(void *context) {
    (void)context;
    return !access("datasets/fashion-mnist/t10k-labels-idx1-ubyte", F_OK);
}

static int never(void *context) {
    (void)context;
    return 0;
}

/* Processes that want the same set at once: one downloads it, and all find it. */
Test(download, on_first_use_by_one_of_several, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    enum { PROCESSES = 3 };
    pid_t pid[PROCESSES];
    if (cannot_run()) cr_skip_test("%s", cannot_run());
    setenv("DUET_DOWNLOAD", "on", 1);
    setenv("DUET_DATA_URL", "file://" SOURCE, 1);
    cr_assert_eq(chdir(folder), 0);
    for (int i = 0; i < PROCESSES; i++) {
        pid[i] = fork();
        if (pid[i]) continue;
        if (!freopen("said", "a", stderr)) _exit(9);
        int code = fetch_dataset("fashion-mnist", is_there, NULL);
        if (code) fprintf(stderr, "%s\n", error_message());
        fflush(stderr);
        _exit(code || !is_there(NULL));
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        cr_assert(waitpid(pid[i], &status, 0) == pid[i] && status == 0, "process %d: %d", i,
                  status);
    }
    cr_expect_eq(shell("test $(grep -c 'downloading fashion-mnist' %s/said%s) = 1", ""), 0);
    cr_expect_eq(shell("test $(ls -A %s/datasets/fashion-mnist | wc -l) = 4%s", ""), 0);
    /* What lies there is the user's, and no program replaces it. */
    cr_assert_eq(shell("echo x > %s/datasets/fashion-mnist/%s", "t10k-labels-idx1-ubyte"), 0);
    cr_assert_eq(fetch_dataset("fashion-mnist", never, NULL), OK, "%s", error_message());
    cr_expect_eq(
        shell("test $(wc -c < %s/datasets/fashion-mnist/%s) = 2", "t10k-labels-idx1-ubyte"), 0);
    cr_assert_eq(chdir("/"), 0);
}

/* A server that never answers, and a program that is killed meanwhile: its download ends too. */
Test(download, ends_with_its_program, .timeout = 60, .init = scratch_make, .fini = scratch_remove) {
    char url[64];
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    if (cannot_run()) cr_skip_test("%s", cannot_run());
    int server = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(!bind(server, (struct sockaddr *)&at, sizeof at) && !listen(server, 8));
    cr_assert_eq(getsockname(server, (struct sockaddr *)&at, &bytes), 0);
    snprintf(url, sizeof url, "http://127.0.0.1:%d", ntohs(at.sin_port));
    setenv("DUET_DOWNLOAD", "on", 1);
    setenv("DUET_DATA_URL", url, 1);
    pid_t pid = fork();
    if (!pid) {
        if (chdir(folder) || !freopen("said", "a", stderr)) _exit(9);
        _exit(fetch_dataset("mnist", never, NULL));
    }
    int caller = accept(server, NULL, NULL); /* curl has come, and waits */
    cr_assert_geq(caller, 0);
    cr_assert_eq(shell("test -e %s/datasets/mnist%s", ""), 0);
    cr_assert_eq(kill(pid, SIGKILL), 0);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
    while (!shell("test -e %s/datasets%s", ""))
        usleep(20000);
    close(caller);
    close(server);
}

Test(download, that_fails_is_one_line, .timeout = 60, .init = scratch_make,
     .fini = scratch_remove) {
    char from[256], line[1024];
    if (cannot_run()) cr_skip_test("%s", cannot_run());
    cr_assert_not_null(getcwd(from, sizeof from));
    setenv("DUET_DOWNLOAD", "on", 1);
    setenv("DUET_DATA_URL", "file:///nowhere", 1);
    snprintf(line, sizeof line,
             "cd %s && %s/" BUILD_DIR "/duet train --dataset mnist --model convnet 2>said >out",
             folder, from);
    int status = system(line);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 1, "%d", status);
    cr_expect_eq(shell("grep -q '^duet: downloading mnist to datasets/mnist' %s/said%s", ""), 0);
    cr_expect_eq(shell("grep '^duet: data set not found: mnist, and its download failed (curl: ' "
                       "%s/said | grep -q 'make data'%s",
                       ""),
                 0);
    cr_expect_eq(shell("test $(wc -l < %s/said%s) = 2", ""), 0);
    cr_expect_eq(shell("test ! -e %s/datasets%s", ""), 0, "something is left behind");
    setenv("DUET_DOWNLOAD", "off", 1);
    cr_assert(system(line) && !shell("grep -q 'DUET_DOWNLOAD is off' %s/said%s", ""));
}
