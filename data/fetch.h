/* Downloading a data set on first use. Inside data/. */
#ifndef DATA_FETCH_H
#define DATA_FETCH_H

/* Brings the four files of "mnist" or "fashion-mnist" to ./datasets/NAME, by the text of
 * scripts/download_data.sh: each file is checked by its sha256 and appears whole or not at all. Of
 * processes that do so in one folder at once, the first downloads and the others wait for it; they
 * find `there` true then. `there` is asked before anything is started, and says 1 where the files
 * are in place. A line on stderr says what is done.
 *
 * ERR_FAILED: it could not be had, and the text of the error says why, as a part of a sentence;
 * DUET_DOWNLOAD is off; or no copy came within the deadline. */
int fetch_dataset(const char *name, int (*there)(void *context), void *context);

#endif
