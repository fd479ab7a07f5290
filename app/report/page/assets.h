/* The style of the page: the file of this folder, as it is, inside the program (assets.c). A text
 * that ends with a zero byte. */
#ifndef REPORT_PAGE_ASSETS_H
#define REPORT_PAGE_ASSETS_H

extern const char asset_page_css[];

#endif
