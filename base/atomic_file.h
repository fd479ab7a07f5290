/* Files that are there whole or not at all: written under no name (or a temporary one in the
 * same folder), synced, then put in place of the old file by rename, which is atomic. A reader,
 * a crash or a full disk never shows half a checkpoint, and the old one stays until the new one
 * is safe.
 *
 *     struct atomic_file f = {0};
 *     CHECK_GOTO(atomic_open(&f, path), code, out);     fails here if the folder cannot be written: ask early
 *     fwrite(..., f.file);                              any error is found by commit
 *     CHECK_GOTO(atomic_commit(&f), code, out);
 * out:
 *     atomic_abandon(&f);                               nothing after a commit, else removes what was begun
 *
 * A path that exists and is no regular file (/dev/null, a pipe) is written directly; a link
 * stays a link. */
#ifndef BASE_ATOMIC_FILE_H
#define BASE_ATOMIC_FILE_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

struct atomic_file {
    FILE *file;
    char *name;      /* as the caller gave it: errors say it */
    char *target;    /* the name in the end, links followed; NULL: written directly */
    char *temporary; /* the name until then */
    int unnamed;     /* the file has no name yet: if the process is killed now, nothing is left */
};

int atomic_open(struct atomic_file *f, const char *path);
int atomic_commit(struct atomic_file *f);
void atomic_abandon(struct atomic_file *f); /* zeroed, half open or committed are fine */

#ifdef __cplusplus
}
#endif
#endif
