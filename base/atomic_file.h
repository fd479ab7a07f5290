/* Files that appear whole or not at all.
 *
 * The new content is written to a file without a name (or under a temporary name in the same
 * folder), synced to disk, and then put in place of the old file by rename, which is atomic.
 * Neither a crash nor a full disk leaves half a checkpoint, and the old file stays until the new
 * one is safe.
 *
 *     struct atomic_file f = {0};
 *     CHECK_GOTO(atomic_open(&f, path), code, out);  // fails if the folder cannot be written
 *     fwrite(..., f.file);                           // a write error is reported by the commit
 *     CHECK_GOTO(atomic_commit(&f), code, out);
 * out:
 *     atomic_abandon(&f);                            // removes what was not committed
 *
 * A path that exists and is not a regular file (/dev/null, a pipe) is written directly. Where
 * the path is a symbolic link, the link stays and the file it points to is replaced. */
#ifndef BASE_ATOMIC_FILE_H
#define BASE_ATOMIC_FILE_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct atomic_file {
    FILE *file;
    char *name;      /* the path as the caller gave it; error messages quote it */
    char *target;    /* the path to replace, links followed; NULL: the path is written directly */
    char *temporary; /* the name that the new file bears just before the rename */
    int unnamed;     /* 1: the new file has no name, so a killed process leaves nothing behind */
};

/* Opens f->file for writing. ERR_FAILED: `path` cannot be written; ERR_MEMORY. */
int atomic_open(struct atomic_file *f, const char *path);

/* Syncs and closes the file and gives it its name. ERR_FAILED: something could not be written;
 * the old file is then still in place. */
int atomic_commit(struct atomic_file *f);

/* Frees everything, and removes a file that was not committed. Takes a struct that is zeroed,
 * half open or committed. */
void atomic_abandon(struct atomic_file *f);

#ifdef __cplusplus
}
#endif
#endif
