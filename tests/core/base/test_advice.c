/* The command names its options where the library tells a program what to do. */
#include "base/advice.h"
#include "base/error.h"
#include "tests/harness/harness.h"

Test(advice, becomes_options, .timeout = 30) {
    fail(ERR_MEMORY, "full: use less, or " ADVICE_MORE_MEMORY ", or " ADVICE_FEWER_DEVICES);
    cr_expect_str_eq(error_with_options(),
                     "full: use less, or a larger --device-memory, or give fewer --devices");
    cr_expect_str_eq(error_with_options(), error_message());
    fail(ERR_TIMEOUT, "late: %s; rank 2 waits", ADVICE_TIMEOUT);
    cr_expect_str_eq(error_with_options(), "late: give a longer --timeout; rank 2 waits");
    fail(ERR_FAILED, "100 %% of it");
    cr_expect_str_eq(error_with_options(), "100 % of it");
}
