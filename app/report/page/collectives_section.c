/* The section of collectives: how DDP sums its largest bucket, in a figure and a table of its
 * moves. */
#include <inttypes.h>

#include "base/error.h"
#include "report/pictures/collective.h"
#include "report/page/html.h"
#include "report/page/tables.h"
#include "report/text.h"

static void open_part(FILE *file, const struct page_run *run) {
    fprintf(file, "<div class=\"part\"><h3>");
    html_text(file, run->title);
    fprintf(file, "</h3>\n");
}

/* A table of thousands of rows helps nobody. */
enum { MOST_MOVES = 200 };

static int collective_table(FILE *file, const struct page *page) {
    struct hops hops;
    const struct run_record *r = page->run[index_of_ddp(page)].run;
    CHECK(hops_of_bucket(r, largest_bucket_of(r), &hops, NULL));
    open_table(file,
               hops.move_count > MOST_MOVES ? "the first moves, in their order"
                                            : "every move, in its order",
               "hop|from rank|to rank|what|elements");
    for (int k = 0; k < hops.move_count && k < MOST_MOVES; k++) {
        const struct hop_move *m = &hops.moves[k];
        if (m->from == m->to) continue;
        fprintf(file,
                "<tr><th scope=\"row\">%d</th><td>%d</td><td>%d</td><td>%s</td>"
                "<td>%" PRIu64 " to %" PRIu64 "</td></tr>\n",
                m->hop, m->from, m->to, m->action == HOP_REDUCE ? "is added" : "is copied",
                m->to_offset, m->to_offset + m->count - 1);
    }
    close_table(file);
    hops_free(&hops);
    return OK;
}

static int put_allreduce(FILE *file, const struct page *page) {
    struct hops hops;
    struct text text = {.used = 0};
    char size[32];
    int instead, index = index_of_ddp(page);
    const struct run_record *r = page->run[index].run;
    int bucket = largest_bucket_of(r);
    CHECK(hops_of_bucket(r, bucket, &hops, &instead));
    open_part(file, &page->run[index]);
    bytes_words(bucket < r->bucket_count ? (double)r->bucket_bytes[bucket] : 0, size);
    if (r->bucket_count == 1)
        text_add(&text, "Every step sums one bucket of %s over %d ranks, by the algorithm %s.",
                 size, r->devices, bucket_algorithm(r, bucket));
    else
        text_add(&text,
                 "Every step sums %d buckets over %d ranks, the largest of them, %s, by the "
                 "algorithm %s. The picture shows that one.",
                 r->bucket_count, r->devices, size, bucket_algorithm(r, bucket));
    put_paragraph(file, "",
                  "%s Who sends what in which hop is read from the plan that all ranks run, and "
                  "not measured.%s",
                  text.words,
                  instead ? " What the library does inside is not known here; a ring "
                            "stands for it."
                          : "");
    hops_free(&hops);
    CHECK(put_figure(file, page, draw_collective, 0,
                     "What the data of each rank (row) holds, chunk by chunk (column). A stripe is "
                     "the term of a rank; a full cell is the sum of all. What a hop wrote is "
                     "underlined."));
    CHECK(collective_table(file, page));
    fprintf(file, "</div>\n");
    return OK;
}

int collectives_content(FILE *file, const struct page *page) {
    if (has_collective(page)) return put_allreduce(file, page);
    put_paragraph(file, "", "No run of DDP over several devices was measured.");
    return OK;
}
