/* Suggestions for unknown words of the command line. */
#ifndef BASE_TEXT_NEAREST_H
#define BASE_TEXT_NEAREST_H

/* The known word that `word` was most likely meant to be: the one at the smallest edit distance,
 * which may be up to a quarter of the word's length, or 1; else the shortest that begins with
 * `word`. NULL if there is none. Only the part of `word` before '=' counts; '_' is read as '-', and
 * capitals as small letters, which all known words have. */
const char *nearest_word(const char *word, const char *const *known, int count);

/* The number of edits that make `a` into `b`: a character is inserted, deleted or replaced, or two
 * neighbours are swapped. Both have at most LONGEST_WORD characters. */
enum { LONGEST_WORD = 40 };
int edit_distance(const char *a, const char *b);

/* Fails with ERR_USAGE: "unknown option: WORD: did you mean KNOWN?", or, if no known word is near,
 * "unknown option: WORD: see HELP". */
int unknown_option(const char *word, const char *const *known, int count, const char *help);

/* Fails with ERR_USAGE: "WHAT: 'WORD': there are A, B and C", followed by ": did you mean B?" if a
 * known word is near. `what`: the flag, or what the word names. */
int unknown_value(const char *what, const char *word, const char *const *known, int count);

#endif
