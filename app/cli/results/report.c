/* The files of --report and --pictures: see report.h. */
#include "cli/results/report.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/results/png.h"
#include "doctor/cuda/gpu.h"

/* A picture that is being written. */
struct pictures {
    const char *folder;
    struct atomic_file file;
    int count, no_png; /* pictures that were written; 1: without PNG */
};

static int open_picture(void *context, const char *name, FILE **file) {
    struct pictures *p = context;
    char path[PATH_MAX];
    atomic_abandon(&p->file); /* the last one, where drawing it has failed */
    snprintf(path, sizeof path, "%s/%s", p->folder, name);
    CHECK(atomic_open(&p->file, path));
    *file = p->file.file;
    return OK;
}

static int close_picture(void *context) {
    struct pictures *p = context;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", p->file.name);
    int code = atomic_commit(&p->file);
    atomic_abandon(&p->file);
    p->count += !code;
    return code || p->no_png ? code : png_beside(path, &p->no_png);
}

/* Pictures that are there and cannot be replaced are noticed at once. The first is opened in any
 * case: a folder may take no file at all. */
static int try_pictures(const char *folder) {
    struct pictures try = {.folder = folder};
    char names[PAGE_PICTURES][PICTURE_NAME], path[PATH_MAX];
    int code = OK, count = page_picture_names(names);
    FILE *file;
    for (int i = 0; i < count && !code; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (i == 0 || !access(path, F_OK)) code = open_picture(&try, names[i], &file);
    }
    atomic_abandon(&try.file);
    return code;
}

static int try_folder(struct report *r, const char *folder) {
    struct stat s;
    if (mkdir(folder, 0777) == 0)
        r->made = 1;
    else if (errno != EEXIST)
        return fail_errno(ERR_FAILED, errno, "--pictures: %s: the folder cannot be made", folder);
    else if (!stat(folder, &s) && !S_ISDIR(s.st_mode))
        return fail(ERR_FAILED, "--pictures: %s: is no folder: name a folder for the pictures",
                    folder);
    return try_pictures(folder);
}

int report_open(struct report *r, const struct run_config *config) {
    r->folder = config->files.pictures;
    if (*config->files.report) CHECK(atomic_open(&r->page, config->files.report));
    return *config->files.pictures ? try_folder(r, config->files.pictures) : OK;
}

static int write_page(struct report *r, const struct page *page) {
    if (!r->page.file) return OK;
    CHECK(page_write(r->page.file, page));
    return atomic_commit(&r->page);
}

static int write_pictures(struct report *r, const struct page *page) {
    struct pictures pictures = {.folder = r->folder};
    const struct picture_files files = {open_picture, close_picture, &pictures};
    if (!r->folder || !*r->folder) return OK;
    int code = page_pictures(page, &files);
    atomic_abandon(&pictures.file);
    r->pictures = pictures.count;
    r->no_png = pictures.no_png;
    return code;
}

int report_write(struct report *r, struct page *page, const char *command) {
    struct failures all = {0};
    struct origin origin;
    char cuda[160];
    if (!r->page.file && !(r->folder && *r->folder)) return OK;
    gpu_build(cuda, sizeof cuda);
    int code = origin_find(&origin, cuda);
    page->command = command;
    page->origin = &origin;
    if (!code) failures_add(&all, write_page(r, page));
    if (!code) failures_add(&all, write_pictures(r, page));
    origin_free(&origin);
    page->origin = NULL;
    return code ? code : failures_end(&all);
}

void report_abandon(struct report *r) {
    atomic_abandon(&r->page);
    if (r->made) rmdir(r->folder); /* which does nothing where there is a picture in it */
    r->made = 0;
}
