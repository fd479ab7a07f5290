/* Files without a name: their content is on disk, but no folder lists them. If the process is
 * killed, the system removes them, so no temporary file is left behind. base/files/atomic_file.h
 * uses them. */
#ifndef BASE_FILES_UNNAMED_FILE_H
#define BASE_FILES_UNNAMED_FILE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The folder part of a path, for the caller to free: "." if the path has none. NULL: no memory. */
char *path_folder(const char *path);

/* Opens a new file without a name, for reading and writing, in the folder of `path`. Returns its
 * descriptor, or -1 with errno. */
int unnamed_open(const char *path);

/* Gives the content of an unnamed file a new name in the folder of `path`: that of `path`, followed
 * by a random suffix. Returns the name, for the caller to free, or NULL with errno. The file is
 * synced, and has the permissions of `fd`. Where the system cannot name an unnamed file (linkat is
 * refused, /proc is missing, the folder is on another file system), the new file is a copy. */
char *unnamed_give_name(int fd, const char *path);

/* Would a rename put another file in place of the one at `path`? It would not where the file
 * belongs to another user in a sticky folder (/tmp), may only be appended to, or is a mount point.
 * Changes nothing. Returns 0, also where it cannot be tried, or -1 with errno. */
int replace_try(const char *path);

/* Copies all of the file `from` to the file `to`. Returns 0, or -1 with errno. */
int file_copy(int from, int to);

/* Writes all bytes. Returns 0, or -1 with errno. */
int write_whole(int fd, const char *bytes, size_t count);

#ifdef __cplusplus
}
#endif
#endif
