/* Files that appear whole or not at all.
 *
 * The new content goes to a file next to the old one: it has no name (O_TMPFILE) until the end, or,
 * where the file system has no such files, is called duet-NUMBER.tmp. At the end it is synced to
 * disk and put in place of the old file by rename, which is atomic. Neither a crash nor a full disk
 * leaves half a checkpoint, and the old file stays until the new one is safe.
 *
 *     struct atomic_file f = {0};
 *     CHECK_GOTO(atomic_open(&f, path), code, out);
 *     fwrite(..., f.file);                           // the commit reports a write error
 *     CHECK_GOTO(atomic_commit(&f), code, out);
 * out:
 *     atomic_abandon(&f);                            // removes what was not committed
 *
 * If `path` is a symbolic link to a file, the link stays and the file is replaced. Special files
 * (/dev/null, a pipe) and descriptors of this process (/dev/stdout, /dev/fd/3) are written
 * directly. "-" is refused: it is standard output to some programs and a file to others. */
#ifndef BASE_FILES_ATOMIC_FILE_H
#define BASE_FILES_ATOMIC_FILE_H

#include <stdio.h>

/* Must not move in memory while it is open. */
struct atomic_file {
    FILE *file;     /* what the caller writes to */
    char *name;     /* the caller's path, which error messages quote */
    char *target;   /* the path to replace; NULL: `file` writes directly */
    char *beside;   /* the temporary name in the folder of the target */
    int named;      /* 1: the content is stored under the temporary name */
    int fd, error;  /* the descriptor of `file`; errno of the first failed write, 0: none */
    int disposable; /* set by the caller: delete content that cannot be put in place */
};

/* Opens f->file for writing. The file gets the permissions of the one it replaces. ERR_FAILED:
 * `path` cannot be written, or the file is read-only. ERR_USAGE: it is "-". ERR_MEMORY. */
int atomic_open(struct atomic_file *f, const char *path);

/* The real path of the file that would be replaced, which the caller frees. NULL: `path` does not
 * lead to a file, or memory ran out. */
char *atomic_target(const char *path);

/* Syncs and closes the file and puts it in place. After ERR_FAILED the old file is still there. If
 * all content was written but cannot be put in place, the error says where it is. */
int atomic_commit(struct atomic_file *f);

/* Frees everything, and drops content that was not committed. A zeroed, half-open or committed
 * struct is fine. */
void atomic_abandon(struct atomic_file *f);

#endif
