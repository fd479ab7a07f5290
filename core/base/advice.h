/* Advice about errors. Messages of the library end with one of these texts, which name functions.
 * For users of the command, the text names the option instead. */
#ifndef BASE_ADVICE_H
#define BASE_ADVICE_H

#define ADVICE_TIMEOUT "give a longer timeout"
#define ADVICE_MORE_MEMORY "open the device with more memory"
#define ADVICE_LESS_MEMORY "open the device with less memory"
#define ADVICE_FEWER_DEVICES "open fewer devices"
#define ADVICE_MEMORY_SIZE "give its size in bytes"
#define ADVICE_CPU "open devices of the kind \"cpu\""
#define ADVICE_GPU "open devices of the kind \"cuda\""
#define ADVICE_AUTO "set allreduce to \"auto\""
#define ADVICE_FIND_UNUSED "passing find_unused_parameters of struct duet_ddp_options"

/* error_message() of base/error.h, with the command's options in place of these texts. Code of the
 * command that prints or keeps the message uses it. */
const char *error_with_options(void);

#endif
