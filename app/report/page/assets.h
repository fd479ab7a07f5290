/* The style and the scripts of the page: the files of this folder, as they are, inside the program
 * (assets.c). Texts that end with a zero byte. */
#ifndef REPORT_PAGE_ASSETS_H
#define REPORT_PAGE_ASSETS_H

extern const char asset_page_css[];
extern const char asset_page_js[];

#endif
