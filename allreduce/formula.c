/* Computes bytes with formulas; see formula.h. This file looks at no plan, so formula and plan
 * check each other. */
#include "allreduce/formula.h"

#include <string.h>

/* Bytes of part i of `parts`: all are as long as a share rounded up to `align`, until nothing is
 * left. */
static uint64_t part_bytes(size_t count, int parts, int i, size_t align) {
    size_t share = (count + (size_t)parts - 1) / (size_t)parts;
    size_t part = (share + align - 1) / align * align, start = part * (size_t)i;
    size_t left = start < count ? count - start : 0;
    return (left < part ? left : part) * sizeof(float);
}

/* Rank 0 takes (n-1) S and gives as much; the others exchange S with it. */
static void by_rank_0(struct formula *f, int n, int rank, uint64_t S) {
    f->in = f->out = rank ? S : (uint64_t)(n - 1) * S;
    f->textbook_in = f->textbook_out = (double)f->in;
    f->textbook_words = f->in_words = f->out_words = rank ? "S" : "(n-1) S";
}

static void of_ring(struct formula *f, int n, int rank, size_t count, size_t align) {
    uint64_t S = count * sizeof(float), c[3];
    for (int i = 0; i < 3; i++)
        c[i] = part_bytes(count, n, (rank + i) % n, align);
    f->in = 2 * S - c[0] - c[1];
    f->out = 2 * S - c[1] - c[2];
    f->textbook_words = "2(n-1)/n S";
    f->in_words = "2S - c[r] - c[r+1]";
    f->out_words = "2S - c[r+1] - c[r+2]";
}

/* In each tree a rank takes that half of the data from each child and from its parent, and also
 * gives it to each of them. */
static void of_tree(struct formula *f, int n, int rank, size_t count, size_t align) {
    uint64_t S = count * sizeof(float);
    for (int which = 0; which < 2; which++) {
        struct tree_node node = plan_tree_node(which, n, rank);
        uint64_t neighbours = (uint64_t)(node.children + (node.parent >= 0));
        f->in += neighbours * part_bytes(count, 2, which, align);
    }
    f->out = f->in;
    f->textbook_in = f->textbook_out = 2.0 * (double)S;
    f->at_most = 1;
    f->textbook_words = "2S";
    f->in_words = f->out_words = "neighbours in A x half A + in B x half B";
}

static void set(struct formula *f, uint64_t in, const char *in_words, uint64_t out,
                const char *out_words, const char *textbook) {
    f->in = in;
    f->out = out;
    f->textbook_in = (double)in;
    f->textbook_out = (double)out;
    f->in_words = in_words;
    f->out_words = out_words;
    f->textbook_words = textbook;
}

/* The first rank has all the others' traffic. */
static void from_root(struct formula *f, int n, int rank, uint64_t S) {
    if (rank)
        set(f, S, "S", 0, "0", "S in");
    else
        set(f, 0, "0", (uint64_t)(n - 1) * S, "(n-1) S", "(n-1) S out");
}

void formula_of_other(enum collective what, int n, int rank, size_t count, struct formula *f) {
    uint64_t S = n > 1 ? count * sizeof(float) : 0, c = n > 1 ? part_bytes(count, n, rank, 1) : 0;
    memset(f, 0, sizeof *f);
    if (what == COLLECTIVE_BROADCAST) {
        from_root(f, n, rank, S);
        return;
    }
    if (what == COLLECTIVE_REDUCE_SCATTER)
        set(f, (uint64_t)(n - 1) * c, "(n-1) c[r]", S - c, "S - c[r]", "(n-1)/n S");
    else
        set(f, S - c, "S - c[r]", (uint64_t)(n - 1) * c, "(n-1) c[r]", "(n-1)/n S");
    f->textbook_in = f->textbook_out = (double)(n - 1) / n * (double)S;
}

int formula_of(enum allreduce_algorithm algorithm, int n, int rank, size_t count, size_t align,
               struct formula *f) {
    uint64_t S = count * sizeof(float), own = part_bytes(count, n, rank, align);
    memset(f, 0, sizeof *f);
    f->textbook_in = f->textbook_out = 2.0 * (n - 1) / n * (double)S;
    switch (algorithm) {
    case ALLREDUCE_NAIVE:
    case ALLREDUCE_FUSED: by_rank_0(f, n, rank, S); break;
    case ALLREDUCE_ONESHOT:
        f->in = f->out = (uint64_t)(n - 1) * S;
        f->textbook_in = f->textbook_out = (double)f->in;
        f->textbook_words = f->in_words = f->out_words = "(n-1) S";
        break;
    case ALLREDUCE_DIRECT:
        f->in = f->out = S + (uint64_t)n * own - 2 * own;
        f->textbook_words = "2(n-1)/n S";
        f->in_words = f->out_words = "S + (n-2) c[r]";
        break;
    case ALLREDUCE_RING: of_ring(f, n, rank, count, align); break;
    case ALLREDUCE_TREE: of_tree(f, n, rank, count, align); break;
    default: memset(f, 0, sizeof *f); return 0;
    }
    if (n == 1 || !count) f->in = f->out = 0, f->textbook_in = f->textbook_out = 0;
    return 1;
}
