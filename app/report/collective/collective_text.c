/* A collective drawn as text: a picture of each hop, and what every rank holds after it. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "report/collective/collective.h"
#include "report/collective/collective_replay.h"
#include "report/text.h"
#include "trace/ledger.h"

/* What is drawn by default: so many hops, or else the first and the last; so many moves of a hop. A
 * table of chunks has at most so many ranks and chunks. */
enum { BRIEF_HOPS = 6, MOST_MOVES = 16, MOST_CELLS = 8 };
enum { COLUMN = 39 }; /* two moves share a line */

/* ---- words ---- */

static const char *s_of(size_t n) {
    return n == 1 ? "" : "s";
}

/* "chunk 3", "chunks 0-3": the chunks of DATA that a move takes or fills. */
static void chunk_words(const struct hops *h, const struct hop_move *m, char *text, size_t bytes) {
    int first, last;
    if (!hops_chunks_of(h, m, &first, &last))
        snprintf(text, bytes, "%s", hop_buffer_name((enum hop_buffer)m->from_buffer));
    else if (first == last)
        snprintf(text, bytes, "chunk %d", first);
    else
        snprintf(text, bytes, "chunks %d-%d", first, last);
}

static void move_words(const struct hops *h, const struct hop_move *m, char *text, size_t bytes) {
    char chunk[40];
    chunk_words(h, m, chunk, sizeof chunk);
    snprintf(text, bytes, "rank %d --%s--> rank %d %s", m->from, chunk, m->to,
             m->action == HOP_REDUCE ? "+" : "=");
}

/* ---- one hop ---- */

/* The moves [first, end) over links, two on a line, from top to bottom. */
static void print_moves(FILE *file, const struct hops *h, int first, int end, int full) {
    int count = end - first, shown = full || count <= MOST_MOVES ? count : MOST_MOVES - 2;
    int lines = (shown + 1) / 2;
    for (int i = 0; i < lines; i++) {
        char left[80], right[80] = "";
        move_words(h, &h->moves[first + i], left, sizeof left);
        if (lines + i < shown) move_words(h, &h->moves[first + lines + i], right, sizeof right);
        fprintf(file, *right ? "  %-*s%s\n" : "  %.0d%s%s\n", *right ? COLUMN : 0, left, right);
    }
    if (shown < count) fprintf(file, "  ... and %d more moves of this kind\n", count - shown);
}

/* ---- what every rank holds ---- */

static void cell_words(const struct replay *r, int rank, int chunk, char cell[16]) {
    uint64_t terms = hops_state_terms(r->state, rank, chunk), all = rank_all(r->of->n);
    char text[MOST_CELLS + 1] = "";
    if (terms == all && r->of->n > 1) {
        strcpy(cell, "sum");
        return;
    }
    for (int q = 0, used = 0; q < r->of->n; q++)
        if (terms >> q & 1) text[used++] = (char)('0' + q), text[used] = 0;
    if (!terms) strcpy(text, "-");
    snprintf(cell, 16, "%s%s", text, replay_is_complete(r, rank, chunk) ? "*" : "");
}

static void print_table(FILE *file, const struct replay *r) {
    const struct hops *h = r->of;
    char cell[16];
    fprintf(file, "\n%8s", "");
    for (int c = 0; c < h->chunk_count; c++)
        fprintf(file, "  chunk %d", c);
    fprintf(file, "\n");
    for (int rank = 0; rank < h->n; rank++) {
        fprintf(file, "  rank %d", rank);
        for (int c = 0; c < h->chunk_count; c++) {
            cell_words(r, rank, c, cell);
            fprintf(file, c + 1 < h->chunk_count ? "  %-7s" : "  %s", cell);
        }
        fprintf(file, "\n");
    }
}

static void print_state(FILE *file, const struct replay *r) {
    const struct hops *h = r->of;
    if (h->n <= MOST_CELLS && h->chunk_count <= MOST_CELLS) {
        print_table(file, r);
        return;
    }
    int64_t complete = 0, in_the_end = 0;
    for (int rank = 0; rank < h->n; rank++) {
        for (int c = 0; c < h->chunk_count; c++) {
            complete += replay_is_complete(r, rank, c);
            in_the_end += r->counts[(size_t)rank * (size_t)h->chunk_count + (size_t)c];
        }
    }
    fprintf(file, "  complete: %" PRId64 " of %" PRId64 " (%d ranks, %d chunk%s)\n", complete,
            in_the_end, h->n, h->chunk_count, s_of((size_t)h->chunk_count));
}

/* ---- all hops ---- */

static int print_hop(FILE *file, struct replay *r, int hop, int first, int end, int full) {
    const struct hops *h = r->of;
    int links = first; /* copies and sums within a rank come after them */
    while (links < end && h->moves[links].from != h->moves[links].to)
        links++;
    CHECK(hops_state_run(r->state, hop));
    if (hop)
        fprintf(file, "\nhop %d of %d\n", hop, h->hops);
    else
        fprintf(file, "\nbefore hop 1\n");
    print_moves(file, h, first, links, full);
    if (full) print_state(file, r);
    return OK;
}

static int print_hops(FILE *file, const struct hops *h, int full) {
    struct replay r;
    int code = replay_init(&r, h), folded = !full && h->hops > BRIEF_HOPS, out = 0;
    for (int i = 0, end; !code && i < h->move_count; i = end) {
        int hop = h->moves[i].hop;
        for (end = i; end < h->move_count && h->moves[end].hop == hop;)
            end++;
        if (!folded || hop <= 1 || hop == h->hops)
            code = print_hop(file, &r, hop, i, end, full);
        else if (!out++)
            fprintf(file, "\n... hops 2 to %d: --full shows them\n", h->hops - 1);
    }
    replay_free(&r);
    return code;
}

static void print_head(FILE *file, const struct drawing *c, int full) {
    const struct hops *h = &c->hops;
    struct text head = {.used = 0};
    char size[32];
    text_add(&head, "%s", c->what);
    if (!strcmp(c->what, "allreduce")) text_add(&head, " by %s", c->word);
    text_add(&head, ", %d rank%s: %zu float%s (%s) in each%s, in %d chunk%s: %d hop%s", c->n,
             s_of((size_t)c->n), c->count, s_of(c->count),
             format_bytes(c->count * sizeof(float), size, sizeof size),
             strncmp(c->word, "group-", 6) ? "" : " block", h->chunk_count,
             s_of((size_t)h->chunk_count), h->hops, s_of((size_t)h->hops));
    text_wrap(file, TEXT_USUAL, 0, 0, head.words);
    if (!h->move_count)
        fprintf(file, "nothing moves\n");
    else if (!full || c->n > MOST_CELLS || h->chunk_count > MOST_CELLS)
        fprintf(file, "+ adds to the chunk there, = replaces it\n");
    else
        fprintf(file,
                "+ adds to the chunk there, = replaces it. In the tables a cell has the ranks\n"
                "whose terms the chunk holds; sum: all ranks; *: part of the result\n");
}

int collective_print(FILE *file, const struct drawing *c, int full) {
    print_head(file, c, full);
    CHECK(print_hops(file, &c->hops, full));
    collective_print_bytes(file, c);
    if (!full && c->hops.move_count)
        fprintf(file, "\nwhat each rank holds after each hop: --full\n");
    return OK;
}
