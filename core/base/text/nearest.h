/* Suggestions for unknown words on the command line. */
#ifndef BASE_TEXT_NEAREST_H
#define BASE_TEXT_NEAREST_H

/* The known word that `word` most likely means. That is the word at the smallest edit distance, at
 * most a quarter of the word's length, or 1; otherwise the shortest one that begins with `word`.
 * NULL if none does. Only the part of `word` before '=' counts; '_' is read as '-', and capitals as
 * small letters, in which all known words are written. */
const char *nearest_word(const char *word, const char *const *known, int count);

/* The number of edits that turn `a` into `b`. An edit inserts, deletes or replaces a character, or
 * swaps two neighbours. Both have at most LONGEST_WORD characters. */
enum { LONGEST_WORD = 40 };
int edit_distance(const char *a, const char *b);

/* Fails with ERR_USAGE: "unknown option: WORD: did you mean KNOWN?", or, if no known word is near,
 * "unknown option: WORD: see HELP". */
int unknown_option(const char *word, const char *const *known, int count, const char *help);

/* Fails with ERR_USAGE: "WHAT: 'WORD': expected A, B or C", and then ": did you mean B?" if a known
 * word is near. `what` is the flag, or what the word names. */
int unknown_value(const char *what, const char *word, const char *const *known, int count);

#endif
