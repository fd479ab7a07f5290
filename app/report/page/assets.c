/* The style of the page inside the program: the assembler copies it into its constant data, so
 * that a build needs no other tool and the file stays readable. */
#include "report/page/assets.h"

#define ASSET(name, path)                      \
    __asm__(".pushsection .rodata\n"           \
            ".type " #name ", %object\n"       \
            ".globl " #name "\n" #name ":\n"   \
            ".incbin \"" path "\"\n"           \
            ".byte 0\n"                        \
            ".size " #name ", . - " #name "\n" \
            ".popsection\n")

ASSET(asset_page_css, "app/report/page/page.css");
