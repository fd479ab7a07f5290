/* Prints a collective as text: a drawing of each hop, and what every rank holds after it. */
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "report/collective/collective.h"
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
        snprintf(text, bytes, "scratch");
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

/* The ranks whose terms the cell holds: "023"; "-": none. */
static void cell_words(const struct hops *h, uint64_t terms, char cell[MOST_CELLS + 1]) {
    int used = 0;
    for (int r = 0; r < h->n; r++)
        if (terms >> r & 1) cell[used++] = (char)('0' + r);
    cell[used] = 0;
    if (!terms) strcpy(cell, "-");
    if (terms == rank_all(h->n) && h->n > 1) strcpy(cell, "sum");
}

static void print_table(FILE *file, const struct hops *h, const struct hops_state *state) {
    char cell[MOST_CELLS + 1];
    fprintf(file, "\n%8s", "");
    for (int c = 0; c < h->chunk_count; c++)
        fprintf(file, "  chunk %d", c);
    fprintf(file, "\n");
    for (int rank = 0; rank < h->n; rank++) {
        fprintf(file, "  rank %d", rank);
        for (int c = 0; c < h->chunk_count; c++) {
            cell_words(h, hops_state_terms(state, rank, c), cell);
            fprintf(file, c + 1 < h->chunk_count ? "  %-7s" : "  %s", cell);
        }
        fprintf(file, "\n");
    }
}

static void print_state(FILE *file, const struct hops *h, const struct hops_state *state) {
    if (h->n <= MOST_CELLS && h->chunk_count <= MOST_CELLS) {
        print_table(file, h, state);
        return;
    }
    int64_t filled = 0, sums = 0;
    for (int rank = 0; rank < h->n; rank++)
        for (int c = 0; c < h->chunk_count; c++) {
            filled += hops_state_terms(state, rank, c) != 0;
            sums += hops_state_terms(state, rank, c) == rank_all(h->n);
        }
    fprintf(file, "  of %d ranks x %d chunk%s %" PRId64 " are filled, %" PRId64 " the sum of all\n",
            h->n, h->chunk_count, s_of((size_t)h->chunk_count), filled, sums);
}

/* ---- all hops ---- */

static int print_hop(FILE *file, const struct hops *h, struct hops_state *state, int hop, int first,
                     int end, int full) {
    int links = first; /* copies and sums within a rank follow */
    while (links < end && h->moves[links].from != h->moves[links].to)
        links++;
    CHECK(hops_state_run(state, hop));
    if (hop)
        fprintf(file, "\nhop %d of %d\n", hop, h->hops);
    else
        fprintf(file, "\nbefore hop 1\n");
    print_moves(file, h, first, links, full);
    if (full) print_state(file, h, state);
    return OK;
}

static int print_hops(FILE *file, const struct hops *h, int full) {
    struct hops_state *state;
    int code = hops_state_init(&state, h), folded = !full && h->hops > BRIEF_HOPS, out = 0;
    for (int i = 0, end; !code && i < h->move_count; i = end) {
        int hop = h->moves[i].hop;
        for (end = i; end < h->move_count && h->moves[end].hop == hop;)
            end++;
        if (!folded || hop <= 1 || hop == h->hops)
            code = print_hop(file, h, state, hop, i, end, full);
        else if (!out++)
            fprintf(file, "\n... hops 2 to %d: --full shows them\n", h->hops - 1);
    }
    hops_state_free(state);
    return code;
}

static void print_head(FILE *file, const struct drawing *c, int full) {
    const struct hops *h = &c->hops;
    struct text head = {""};
    char size[32];
    text_add(&head, "%s", c->what);
    if (!strcmp(c->what, "allreduce")) text_add(&head, " by %s", c->word);
    text_add(&head, ", %d rank%s: %zu float%s (%s) in each, in %d chunk%s: %d hop%s", c->n,
             s_of((size_t)c->n), c->count, s_of(c->count),
             format_bytes(c->count * sizeof(float), size, sizeof size), h->chunk_count,
             s_of((size_t)h->chunk_count), h->hops, s_of((size_t)h->hops));
    text_wrap(file, TEXT_USUAL, 0, 0, head.words);
    if (!h->move_count)
        fprintf(file, "nothing moves\n");
    else if (!full || c->n > MOST_CELLS || h->chunk_count > MOST_CELLS)
        fprintf(file, "+ adds to the chunk there, = replaces it\n");
    else
        fprintf(file,
                "+ adds to the chunk there, = replaces it. In the tables a cell has the ranks\n"
                "whose terms the chunk holds; sum: all ranks\n");
}

int collective_print(FILE *file, const struct drawing *c, int full) {
    print_head(file, c, full);
    CHECK(print_hops(file, &c->hops, full));
    collective_print_bytes(file, c, full);
    if (!full && c->hops.move_count)
        fprintf(file,
                "\nwhat each rank holds after each hop, and the exact byte formula: --full\n");
    return OK;
}
