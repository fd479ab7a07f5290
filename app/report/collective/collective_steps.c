/* The plan itself as a list of steps, with the flags that each awaits and posts; and the bytes that
 * all steps move, beside the formula. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report/collective/collective.h"
#include "report/collective/collective_replay.h"
#include "report/text.h"

enum { AWAITS = 22, MOVES = 31, RANKS = 9, SET_LINE = 76 }; /* columns */

/* ---- steps ---- */

static void flag_words(int kind, uint32_t epoch, uint64_t ranks, const char *of, char text[64]) {
    char set[32];
    set_words(ranks, set, sizeof set);
    text[0] = 0;
    if (ranks)
        snprintf(text, 64, "%s %u %s %s", plan_flag_name((enum plan_flag)kind), epoch, of, set);
}

static void range_words(int buffer, uint64_t offset, uint64_t length, char text[64]) {
    snprintf(text, 64, "%s%s%" PRIu64 "+%" PRIu64,
             buffer == PLAN_DATA ? "" : hop_buffer_name((enum hop_buffer)buffer),
             buffer == PLAN_DATA ? "" : " ", offset, length);
}

static void step_words(const struct plan_step *s, int rank, char text[160]) {
    char from[64], to[64], others[32] = "", rest[64] = "", of[16] = "";
    uint64_t given = s->dest_ranks & ~rank_bit(rank);
    range_words(s->source_buffer, s->source_offset, s->length, from);
    range_words(s->dest_buffer, s->dest_offset, s->length, to);
    set_words(given, others, sizeof others);
    if (given) snprintf(rest, sizeof rest, "%s to %s", s->op == PLAN_COPY ? "" : ",", others);
    text[0] = 0;
    if (s->op == PLAN_NONE || !s->length) return;
    if (s->source_rank != rank) snprintf(of, sizeof of, " of %d", s->source_rank);
    if (s->op == PLAN_SUM)
        snprintf(text, 160, "sum %s of all%s", from, rest);
    else if (s->op != PLAN_COPY)
        snprintf(text, 160, "add %s%s%s", from, of, rest);
    else if (!given && !*of && !strcmp(from, to))
        snprintf(text, 160, "scale %s", from);
    else
        snprintf(text, 160, "copy %s%s%s", from, of, rest);
    if (strcmp(from, to)) {
        size_t used = strlen(text);
        snprintf(text + used, 160 - used, " -> %s", to);
    }
}

static void print_step(FILE *file, const struct plan *plan, int i) {
    const struct plan_step *s = &plan->steps[i];
    char waits[64], moves[160], posts[64];
    flag_words(s->wait_kind, s->wait_epoch, s->wait_ranks, "of", waits);
    flag_words(s->post_kind, s->post_epoch, s->post_ranks, "to", posts);
    step_words(s, plan->rank, moves);
    int room = TEXT_USUAL - (AWAITS + MOVES + 10), length = (int)strlen(posts);
    if (*posts && (strlen(moves) > MOVES || length > room)) /* its own line */
        fprintf(file, "%6d  %-*s %s\n%*s%s\n", i, AWAITS, waits, moves,
                TEXT_USUAL - (length > room ? length : room), "", posts);
    else if (*posts)
        fprintf(file, "%6d  %-*s %-*s %s\n", i, AWAITS, waits, MOVES, moves, posts);
    else if (*moves)
        fprintf(file, "%6d  %-*s %s\n", i, AWAITS, waits, moves);
    else
        fprintf(file, "%6d  %s\n", i, waits);
}

static void print_plan(FILE *file, const struct plan *plan) {
    fprintf(file, "\nsteps of rank %d\n%6s  %-*s %-*s %s\n", plan->rank, "", AWAITS, "awaits flag",
            MOVES, "moves floats first+number", "posts flag");
    for (int i = 0; i < plan->step_count; i++)
        print_step(file, plan, i);
    if (!plan->step_count) fprintf(file, "        none\n");
}

void collective_print_steps(FILE *file, const struct drawing *c, int rank) {
    for (int r = 0; r < c->n; r++)
        if (rank < 0 || r == rank) print_plan(file, &c->plans[r]);
}

/* ---- bytes ---- */

static int same_bytes(const struct drawing *c, int a, int b) {
    const struct formula *f = &c->formula[a], *g = &c->formula[b];
    return collective_in(c, a) == collective_in(c, b) &&
           collective_out(c, a) == collective_out(c, b) && f->in == g->in && f->out == g->out &&
           f->textbook_in == g->textbook_in && f->textbook_out == g->textbook_out &&
           (!c->has_formula || !strcmp(f->textbook_words, g->textbook_words));
}

/* The textbook's number beside what was counted. */
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

/* A set of ranks on lines of its own, which break behind commas. */
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
    fprintf(file, "  %-*s %12" PRIu64 " %12" PRIu64, RANKS, strlen(set) > RANKS ? "" : set, in,
            out);
    if (c->has_formula) {
        fprintf(file, "  %-9s ", in == f->in && out == f->out ? "equal" : "NOT EQUAL");
        print_textbook(file, f, in, out);
    }
    fprintf(file, "\n");
}

/* The formulas to the byte, once for each pair of words, and what their letters mean. */
static void print_exact(FILE *file, const struct drawing *c) {
    const char *in = "", *out = "";
    int parts = 0, shards = 0;
    for (int r = 0; r < c->n; r++) {
        const struct formula *f = &c->formula[r];
        struct text text = {.used = 0};
        if (!strcmp(f->in_words, in) && !strcmp(f->out_words, out)) continue;
        in = f->in_words, out = f->out_words;
        parts |= strstr(in, "c[") || strstr(out, "c[");
        shards |= strstr(in, "s[") || strstr(out, "s[");
        text_add(&text, "formula, rank r = %d%s: into it %s; out of it %s", r,
                 r < c->n - 1 ? " and on" : "", in, out);
        text_wrap(file, TEXT_USUAL, 2, 4, text.words);
    }
    if (parts)
        fprintf(file,
                "  c[i]: bytes of part i of n (c[n] is c[0]); uneven: their lengths differ\n");
    if (shards) fprintf(file, "  s[i]: the bytes of the shard that rank i adds up\n");
}

void collective_print_bytes(FILE *file, const struct drawing *c) {
    uint64_t shown = 0, all_in = 0;
    fprintf(file, "\nbytes over links, counted from the plans; S = %zu bytes in each of n = %d\n",
            c->count * sizeof(float), c->n);
    fprintf(file, "  %-*s %12s %12s", RANKS, "rank", "into it", "out of it");
    fprintf(file, c->has_formula ? "  %-9s %s\n" : "\n", "formula", "textbook");
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
    if (c->has_formula)
        print_exact(file, c);
    else
        fprintf(file, "  there is no formula for this collective here\n");
}
