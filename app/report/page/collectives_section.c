/* The section of collectives: how DDP sums its largest bucket, as a figure. */
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
    fprintf(file, "</div>\n");
    return OK;
}

int collectives_content(FILE *file, const struct page *page) {
    if (has_collective(page)) return put_allreduce(file, page);
    put_paragraph(file, "", "No run of DDP over several devices was measured.");
    return OK;
}
