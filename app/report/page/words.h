/* What a page says in sentences. */
#ifndef REPORT_PAGE_WORDS_H
#define REPORT_PAGE_WORDS_H

#include "report/pictures/draw.h"
#include "report/text.h"

/* The verdict: the model, the time, the memory. A sentence may be empty. */
void verdict_words(const struct page *page, struct text sentence[3]);

#endif
