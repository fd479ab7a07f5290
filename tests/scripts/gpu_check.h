/* A place to try scripts/gpu_check.sh and its parts on a machine without a GPU. */
#ifndef TESTS_SCRIPTS_GPU_CHECK_H
#define TESTS_SCRIPTS_GPU_CHECK_H

#include "tests/cli/json.h"

#ifdef CUDA_EMULATION
#define DEVICE "cuda"
#else
#define DEVICE "cpu"
#endif

/* Makes a folder for the test: p/ for parts, b/ as the build folder with the real programs, out/
 * for results. cli_run then runs scripts/gpu_check.sh, with EMULATION=1, so that no GPU is
 * needed. */
static inline void make_place(void) {
    char path[2 * PATH_MAX], build[PATH_MAX];
    cli_folder_make();
    cr_assert_not_null(realpath(cli_program, path));
    strcpy(build, cli_program);
    *strrchr(build, '/') = 0;
    cr_assert(mkdir("p", 0777) == 0 && mkdir("b", 0777) == 0 &&
              symlink(cli_program, "b/duet") == 0);
    snprintf(path, sizeof path, "%s/bench", build);
    cr_assert_eq(symlink(path, "b/bench"), 0);
    cr_assert_not_null(getcwd(build, sizeof build));
    snprintf(path, sizeof path, "%s/b", build);
    setenv("B", path, 1);
    snprintf(path, sizeof path, "%s/out", build);
    setenv("OUT", path, 1);
    snprintf(path, sizeof path, "%s/p", build);
    setenv("GPU_CHECK_PARTS", path, 1);
    setenv("GPU_CHECK_DEVICE", DEVICE, 1);
    setenv("EMULATION", "1", 1);
    setenv("TMPDIR", build, 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    snprintf(cli_program, sizeof cli_program, "%.*s/scripts/gpu_check.sh", PATH_MAX - 1,
             cli_root_path);
}

/* cli_run for a script whose parts kill processes: they become children of this test and may need a
 * moment to end. */
static inline void run_to_end(struct cli *c, const char *parts) {
    cli_start(c, "%s", parts);
    cli_wait_beside(c, 1);
    cr_assert(cli_nobody_left(CLI_LEFT_SECONDS), "left a process: %s", c->out);
}

static inline void put_script(const char *path, const char *text) {
    unlink(path);
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f, "%s", path);
    fputs(text, f);
    fclose(f);
    chmod(path, 0755);
}

/* The only result file with this ending (json or txt) and this tail of its name: "" for the
 * first run of a day, "-2" for the second. */
static inline const char *result(const char *tail, const char *ending) {
    static char name[PATH_MAX];
    char expression[128];
    int found = 0;
    snprintf(expression, sizeof expression,
             "^gpu_check-[A-Za-z0-9-]+-20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]%s\\.%s$", tail, ending);
    DIR *folder = opendir("out");
    cr_assert_not_null(folder, "no results");
    for (struct dirent *entry; (entry = readdir(folder));)
        if (matches(entry->d_name, expression))
            found++, snprintf(name, sizeof name, "out/%.200s", entry->d_name);
    closedir(folder);
    cr_assert_eq(found, 1, "%d files like %s", found, expression);
    return name;
}

#endif
