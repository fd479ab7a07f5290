/* Suggests words by edit distance; see nearest.h. */
#include "base/text/nearest.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static int least(int a, int b) {
    return a < b ? a : b;
}

/* rows[0][j] is the distance between the first i characters of a and the first j of b; rows[1] and
 * rows[2] are those of i - 1 and i - 2. */
int edit_distance(const char *a, const char *b) {
    int rows[3][LONGEST_WORD + 1], length = (int)strlen(b);
    for (int j = 0; j <= length; j++)
        rows[0][j] = j;
    for (int i = 1; a[i - 1]; i++) {
        memmove(rows[1], rows[0], 2 * sizeof *rows);
        rows[0][0] = i;
        for (int j = 1; j <= length; j++) {
            int deleted = rows[1][j] + 1, inserted = rows[0][j - 1] + 1;
            int replaced = rows[1][j - 1] + (a[i - 1] != b[j - 1]);
            rows[0][j] = least(least(deleted, inserted), replaced);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                rows[0][j] = least(rows[0][j], rows[2][j - 2] + 1); /* the two are swapped */
        }
    }
    return rows[0][length];
}

const char *nearest_word(const char *word, const char *const *known, int count) {
    char plain[LONGEST_WORD + 1];
    size_t length = strcspn(word, "=");
    if (length > LONGEST_WORD) return NULL;
    memcpy(plain, word, length);
    plain[length] = 0;
    for (char *c = plain; *c; c++)
        *c = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
    const char *nearest = NULL;
    int bound = length < 4 ? 1 : (int)length / 4;
    for (int i = 0; i < count; i++) {
        int distance = edit_distance(plain, known[i]);
        /* ties go to the name of the same length: --modle means --model, not --mode */
        int closer = !nearest || distance < bound ||
                     (strlen(nearest) != length && strlen(known[i]) == length);
        if (distance > bound || !closer) continue;
        nearest = known[i];
        bound = distance;
    }
    if (nearest || length <= strlen("--")) return nearest;
    for (int i = 0; i < count; i++) {
        int longer = !strncmp(known[i], plain, length);
        if (longer && (!nearest || strlen(known[i]) < strlen(nearest))) nearest = known[i];
    }
    return nearest;
}

int unknown_option(const char *word, const char *const *known, int count, const char *help) {
    const char *nearest = nearest_word(word, known, count);
    if (nearest) return fail(ERR_USAGE, "unknown option: %s: did you mean %s?", word, nearest);
    return fail(ERR_USAGE, "unknown option: %s: see %s", word, help);
}

int unknown_value(const char *what, const char *word, const char *const *known, int count) {
    char list[512];
    size_t n = 0;
    *list = 0;
    for (int i = 0; i < count && n < sizeof list; i++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s",
                              i == 0           ? ""
                              : i == count - 1 ? " or "
                                               : ", ",
                              known[i]);
    if (n >= sizeof list) { /* the list was cut within a name */
        list[sizeof list - sizeof ", ..."] = 0;
        strcpy(strrchr(list, ','), ", ...");
    }
    const char *nearest = NULL;
    for (int i = 0; i < count && !nearest; i++) /* a100 matches a100-40, and 3090 matches rtx3090 */
        if (strlen(word) > 2 && strcasestr(known[i], word)) nearest = known[i];
    if (!nearest) nearest = nearest_word(word, known, count);
    if (!nearest) return fail(ERR_USAGE, "%s: '%.60s': expected %s", what, word, list);
    return fail(ERR_USAGE, "%s: '%.60s': expected %s: did you mean %s?", what, word, list, nearest);
}
