/* Embeds a file of this tree in the program: SYMBOL[] is its content and a zero byte. The assembler
 * copies it into the constant data, so the program has it wherever it is installed, and a build
 * needs no other tool. The compiler does not know of the file, so the Makefile says which object
 * has it. */
#ifndef BASE_EMBED_H
#define BASE_EMBED_H

#define EMBED(SYMBOL, PATH)                        \
    extern const char SYMBOL[];                    \
    __asm__(".pushsection .rodata\n"               \
            ".type " #SYMBOL ", %object\n"         \
            ".hidden " #SYMBOL "\n"                \
            ".globl " #SYMBOL "\n" #SYMBOL ":\n"   \
            ".incbin \"" PATH "\"\n"               \
            ".byte 0\n"                            \
            ".size " #SYMBOL ", . - " #SYMBOL "\n" \
            ".popsection\n")

#endif
