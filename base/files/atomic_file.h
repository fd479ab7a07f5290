/* Files that appear whole or not at all.
 *
 * The new content goes to a file without a name (base/files/unnamed_file.h). At the end it is
 * synced to disk, given a temporary name in the folder of the old file, and put in place of the old
 * file by rename, which is atomic. Neither a crash nor a full disk leaves half a checkpoint, a
 * killed process leaves no temporary file, and the old file stays until the new one is safe.
 *
 *     struct atomic_file f = {0};
 *     CHECK_GOTO(atomic_open(&f, path), code, out);  // fails if the commit could not succeed
 *     fwrite(..., f.file);                           // a write error is reported by the commit
 *     CHECK_GOTO(atomic_commit(&f), code, out);
 * out:
 *     atomic_abandon(&f);                            // removes what was not committed
 *
 * What was written may be the result of hours, so it is not thrown away if the end fails. If the
 * folder takes no more bytes, the content moves to the temporary folder ($TMPDIR, or /tmp). If the
 * commit cannot put it in place, it leaves the content under another name, beside the old file or
 * in the temporary folder, and the error says where.
 *
 * Where `path` is a symbolic link, the link stays and the file it leads to is replaced. A path that
 * leads to something other than a regular file (/dev/null, a pipe) or to an open descriptor of this
 * process (/dev/stdout, /dev/fd/3) is written directly. "-" is refused: it is standard output to
 * some programs and a file to others. */
#ifndef BASE_FILES_ATOMIC_FILE_H
#define BASE_FILES_ATOMIC_FILE_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Must not move in memory while it is open. */
struct atomic_file {
    FILE *file;   /* what the caller writes to */
    char *name;   /* the path as the caller gave it; error messages quote it */
    char *target; /* the path to replace, links followed; NULL: `file` writes directly */
    int fd;       /* the unnamed file with the new content; unused where target is NULL */
    int error;    /* errno of the first write that failed; 0: none */
    int moved;    /* 1: the unnamed file is in the temporary folder */
    /* The caller may set it to 1 after atomic_open: what cannot be put in place is dropped. For
     * content that will soon be written again. */
    int disposable;
};

/* Opens f->file for writing. The file gets the permissions of the one it replaces. ERR_FAILED:
 * `path` cannot be written, or the file there is read-only or cannot be replaced; ERR_USAGE: it is
 * "-"; ERR_MEMORY. */
int atomic_open(struct atomic_file *f, const char *path);

/* The same for a path that atomic_open has tried before: nothing is tried again, so that a process
 * that is killed meanwhile leaves nothing. For files that are written anew again and again. */
int atomic_open_again(struct atomic_file *f, const char *path);

/* The path of the file that would be replaced, links followed, which the caller frees. NULL: `path`
 * leads to a descriptor of this process, or nowhere, or there is no memory. */
char *atomic_target(const char *path);

/* Syncs and closes the file and puts it in place. ERR_FAILED: that did not succeed; the old file is
 * then still there, and the error says where the new content is. */
int atomic_commit(struct atomic_file *f);

/* Frees everything, and drops content that was not committed. Takes a struct that is zeroed, half
 * open or committed. */
void atomic_abandon(struct atomic_file *f);

#ifdef __cplusplus
}
#endif
#endif
