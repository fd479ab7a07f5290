/* The settings that determine the bits of a run, as strings. A checkpoint holds them, and a run
 * that continues from it must have the same. */
#ifndef TRAIN_FILES_SETTINGS_H
#define TRAIN_FILES_SETTINGS_H

#include "train/session.h"

enum { SETTINGS_MOST = 48, SETTING_BYTES = 260 };

struct setting {
    const char *name;         /* the flag: "--batch-size" */
    char text[SETTING_BYTES]; /* its effective value */
    /* 1: it affects bits only if the rules of docs/design.md section 2 do not promise the same bits
     * in all modes and device counts. */
    int of_way;
};

/* Fills in `settings` and returns how many there are. The session's data and model must be open. */
int settings_list(const struct session *s, struct setting settings[SETTINGS_MOST]);

/* A fingerprint of all samples and answers of a data set. */
uint64_t settings_fingerprint(const struct dataset *set);

#endif
