/* Compares the bytes that all steps of the plans move with the formula. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report/collective/collective.h"
#include "report/text.h"

enum { RANKS = 9, SET_LINE = 76 }; /* columns */

/* "0", "1-3,7": a set of ranks; what does not fit is cut. */
static void set_words(uint64_t ranks, char *text, size_t bytes) {
    size_t used = 0;
    if (bytes) text[0] = 0;
    for (int r = 0, end; r < MAX_DEVICES && used < bytes; r = end + 1) {
        for (end = r; end < MAX_DEVICES && ranks >> end & 1;)
            end++;
        if (end == r) continue;
        const char *comma = used ? "," : "";
        int n = end - r == 1 ? snprintf(text + used, bytes - used, "%s%d", comma, r)
                             : snprintf(text + used, bytes - used, "%s%d-%d", comma, r, end - 1);
        used += (size_t)n;
    }
}

static int same_bytes(const struct drawing *c, int a, int b) {
    const struct formula *f = &c->formula[a], *g = &c->formula[b];
    return collective_in(c, a) == collective_in(c, b) &&
           collective_out(c, a) == collective_out(c, b) && f->in == g->in && f->out == g->out &&
           f->textbook_in == g->textbook_in && f->textbook_out == g->textbook_out &&
           !strcmp(f->textbook_words, g->textbook_words);
}

/* The textbook's number next to the counted one. */
static void print_textbook(FILE *file, const struct formula *f, uint64_t in, uint64_t out) {
    int by_in = f->textbook_in > f->textbook_out;
    double textbook = by_in ? f->textbook_in : f->textbook_out;
    int equal = (double)in == f->textbook_in && (double)out == f->textbook_out;
    int within = f->at_most && (double)in <= f->textbook_in && (double)out <= f->textbook_out;
    if (!strcmp(f->textbook_words, "0")) {
        fprintf(file, "0%s", equal ? ", equal" : "");
        return;
    }
    fprintf(file, "%s%s = %.*f%s", f->at_most ? "at most " : "", f->textbook_words,
            textbook == floor(textbook) ? 0 : 1, textbook,
            within  ? ""
            : equal ? ", equal"
                    : ", uneven");
}

/* A set of ranks on separate lines, which break after commas. */
static void print_long_set(FILE *file, const char *set) {
    while (*set) {
        int n = (int)strlen(set);
        if (n > SET_LINE)
            for (n = SET_LINE; n > 1 && set[n - 1] != ',';)
                n--;
        fprintf(file, "  %.*s\n", n, set);
        set += n;
    }
}

static void print_group(FILE *file, const struct drawing *c, int rank, uint64_t ranks) {
    const struct formula *f = &c->formula[rank];
    uint64_t in = collective_in(c, rank), out = collective_out(c, rank);
    char set[200];
    set_words(ranks, set, sizeof set);
    if (strlen(set) > RANKS) print_long_set(file, set);
    fprintf(file, "  %-*s %12" PRIu64 " %12" PRIu64 "  %-9s ", RANKS,
            strlen(set) > RANKS ? "" : set, in, out,
            in == f->in && out == f->out ? "equal" : "NOT EQUAL");
    print_textbook(file, f, in, out);
    fprintf(file, "\n");
}

/* The formulas to the byte, once for each pair of words, and what their letters mean. */
static void print_exact(FILE *file, const struct drawing *c) {
    const char *in = "", *out = "";
    int parts = 0, shards = 0;
    for (int r = 0; r < c->n; r++) {
        const struct formula *f = &c->formula[r];
        if (!strcmp(f->in_words, in) && !strcmp(f->out_words, out)) continue;
        in = f->in_words, out = f->out_words;
        parts |= strstr(in, "c[") || strstr(out, "c[");
        shards |= strstr(in, "s[") || strstr(out, "s[");
        text_say(file, TEXT_USUAL, 2, 4, "formula, rank r = %d%s: into it %s; out of it %s", r,
                 r < c->n - 1 ? " and on" : "", in, out);
    }
    if (parts)
        fprintf(file,
                "  c[i]: bytes of part i of n (c[n] is c[0]); uneven: their lengths differ\n");
    if (shards) fprintf(file, "  s[i]: the bytes of the shard that rank i adds up\n");
}

void collective_print_bytes(FILE *file, const struct drawing *c, int full) {
    uint64_t shown = 0, all_in = 0;
    fprintf(file, "\nbytes over links, counted from the plans; S = %zu bytes in each of n = %d\n",
            c->count * sizeof(float), c->n);
    fprintf(file, "  %-*s %12s %12s  %-9s %s\n", RANKS, "rank", "into it", "out of it", "formula",
            "textbook");
    for (int r = 0; r < c->n; r++) {
        uint64_t ranks = 0;
        all_in += collective_in(c, r);
        if (shown >> r & 1) continue;
        for (int q = r; q < c->n; q++)
            if (same_bytes(c, r, q)) ranks |= rank_bit(q);
        shown |= ranks;
        print_group(file, c, r, ranks);
    }
    fprintf(file, "  %-*s %12" PRIu64 " %12" PRIu64 "\n", RANKS, "all", all_in, all_in);
    if (full) print_exact(file, c);
}
