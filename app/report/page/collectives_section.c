/* The section of collectives: what DP moves in a step, and how DDP sums its largest bucket, each
 * with a figure and a table of its moves. */
#include <inttypes.h>

#include "base/error.h"
#include "report/pictures/collective.h"
#include "report/page/html.h"
#include "report/pictures/moves.h"
#include "report/page/tables.h"
#include "report/text.h"

static void open_part(FILE *file, const struct page_run *run) {
    fprintf(file, "<div class=\"part\"><h3>");
    html_text(file, run->title);
    fprintf(file, "</h3>\n");
}

/* ---- DP ---- */

/* The bytes of each move, by the device whose stream moves them. */
static void moves_table(FILE *file, const struct page *page, int i) {
    const struct run_record *r = page->run[i].run;
    struct dp_move moves[MOST_DP_MOVES];
    struct text summary = {.used = 0};
    int count = dp_moves_of(r, moves);
    text_add(&summary, "%s: what each move brings over links, a step", page->run[i].title);
    open_table(file, summary.words, "move|of what|enqueued by device|bytes a step");
    for (int k = 0; k < count; k++)
        for (int d = 0; d < r->devices; d++) {
            double bytes = (double)r->device[d].phase_bytes[moves[k].phase];
            char words[32];
            if (!(bytes > 0)) continue;
            fprintf(file, "<tr><th scope=\"row\">%s</th><td>%s</td><td>%d</td><td>",
                    dp_move_name(&moves[k]), moves[k].what, d);
            html_text(file, bytes_words(record_per_step(r, bytes), words));
            fprintf(file, "</td></tr>\n");
        }
    close_table(file);
}

/* What device 0 sends and takes in the first run of DP. Another one moves the same, but for the
 * outputs. */
static int put_moves(FILE *file, const struct page *page, int first) {
    open_part(file, &page->run[first]);
    put_paragraph(file, "",
                  "What DataParallel moves in every step, in this order. Bytes were counted. "
                  "Copies of one hop are enqueued one after another on one device's stream.");
    CHECK(put_figure(file, page, draw_moves, first,
                     "What each device (row) holds, part by part (column), in the strength of the "
                     "device that it came from; in reduce a stripe is the term of a device, and a "
                     "full cell is the sum of all. What a hop wrote is underlined."));
    for (int i = first; i < page->count; i++) {
        if (!has_moves(page, i)) continue;
        if (i > first)
            put_paragraph(file, "",
                          "%s moves the same, but gathers a loss of each device in place of the "
                          "outputs, and sends back no gradient of them.",
                          page->run[i].title);
        moves_table(file, page, i);
    }
    fprintf(file, "</div>\n");
    return OK;
}

/* ---- DDP ---- */

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
    int first = 0;
    while (first < page->count && !has_moves(page, first))
        first++;
    if (first < page->count) CHECK(put_moves(file, page, first));
    if (has_collective(page)) CHECK(put_allreduce(file, page));
    if (first == page->count && !has_collective(page))
        put_paragraph(file, "", "No run of DP or DDP over several devices was measured.");
    return OK;
}
