/* Calls every public function with arguments that no program should pass. Each function has one
 * line with a good call. For each marked argument the call is repeated with each of its bad values,
 * while all others stay good. It must return DUET_USAGE, or nothing (NULL or 0), and set a new
 * error of one line. tests/check_layers.sh checks that no function of duet.h is missing here. */
#include <limits.h>
#include <math.h>
#include <unistd.h>

#include "tests/duet/shared.h"

static int mutation, seen, mutated, without_tape;

/* 1: this argument is the one to be bad now. It has `count` bad values. */
static int bad(int count) {
    int at = mutation - seen;
    seen += count;
    return at >= 0 && at < count && (mutated = 1) ? at + 1 : 0;
}

/* Bad values: of an object none; of a number the ends of int and one below 0; of a shape, order or
 * index none, and numbers like these; of a real NaN; of a tape none. */
static int huge[8] = {INT_MAX, INT_MAX, INT_MAX}, minus[8] = {-9, -9, -9};
#define O(object) (bad(1) ? NULL : (object))
static int I(int good) {
    static const int values[] = {INT_MIN, -9, INT_MAX};
    int k = bad(3);
    return k ? values[k - 1] : good;
}
__attribute__((unused)) static const int *S(const int *good) {
    const int *const values[] = {NULL, huge, minus};
    int k = bad(3);
    return k ? values[k - 1] : good;
}
static double R(double good) {
    return bad(1) ? NAN : good;
}

static duet_device *d;
static duet_params *p;
static duet_tape *t;
static duet_tensor *X4, *X2, *X36, *labels;
static duet_var *x, *flat, *seq, *state;

__attribute__((unused)) static duet_tape *T(void) {
    return bad(1) ? (without_tape = 1, NULL) : t;
}

static const char *doing;

static void begin(void) {
    cr_assert_eq(duet_tape_begin(t, p, 2, DUET_TRAIN), DUET_OK, "%s: %s", doing, duet_error());
    x = duet_input(t, X4), flat = duet_flatten(t, x);
    seq = duet_reshape(t, x, 3, (int[]){2, 3, 12}), state = NULL;
    cr_assert(x && flat && seq);
}

/* Before each call the error is another one's. */
static void set_out(const char *call, int with_pass) {
    doing = call, seen = mutated = without_tape = 0;
    if (getenv("MISUSE_SHOW")) fprintf(stderr, "%s, %d\n", call, mutation);
    if (with_pass) begin();
    (void)!duet_device_count("nonsense");
}

static int judged_code(int code) {
    const char *error = duet_error();
    if (!mutated) {
        cr_expect_eq(code, DUET_OK, "%s: %s", doing, error);
        return 0;
    }
    cr_expect_eq(code, DUET_USAGE, "%s, bad value %d: code %d: %s", doing, mutation, code, error);
    cr_expect(*error && !strchr(error, '\n') && !strstr(error, "nonsense"),
              "%s, bad value %d: no error: %s", doing, mutation, error);
    return 1;
}

__attribute__((unused)) static int judged_var(const duet_var *y) {
    cr_expect((y == NULL) == mutated, "%s, bad value %d: %s", doing, mutation, duet_error());
    return without_tape ? 1 : judged_code(duet_tape_error(t));
}

static int judged_nothing(int something) {
    cr_expect(!(mutated && something), "%s, bad value %d", doing, mutation);
    return mutated;
}

#define RUN(call, with_pass, judged)                                          \
    for (mutation = 0; set_out(#call, with_pass), judged(call); mutation++) { \
    }
#define CODE(call) RUN(call, 0, judged_code)
#define VAR(call) RUN(call, 1, judged_var)
#define NOTHING(call) RUN((call) != 0, 0, judged_nothing)
#define SAFE(call) RUN(((void)(call), 0), 0, judged_nothing)
#define BAD(call) (mutation = 0, set_out(#call, 0), mutated = 1, judged_code(call))

static void open_all(void) {
    static const struct duet_param net[] = {{"c", 4, {4, 1, 3, 3}, NULL}, {"b", 1, {4}, NULL},
                                            {"l", 2, {4, 36}, NULL},      {"m", 2, {36, 4}, NULL},
                                            {"i", 2, {16, 12}, NULL},     {"h", 2, {16, 4}, NULL},
                                            {"k", 4, {1, 4, 3, 3}, NULL}, {"o", 1, {1}, NULL}};
    static const struct duet_buffer buffers[] = {{"mean", DUET_F32, 1, {1}, 0},
                                                 {"var", DUET_F32, 1, {1}, 1}};
    MUST(duet_devices_open(&d, 1, "cpu", API_MEMORY));
    MUST(duet_params_create(&p, d, net, 8));
    MUST(duet_params_register_buffers(p, buffers, 2));
    MUST(duet_tape_create(&t, d));
    MUST(duet_tensor_create(&X4, d, DUET_F32, 4, (int[]){2, 1, 6, 6}, NULL));
    MUST(duet_tensor_create(&X2, d, DUET_F32, 2, (int[]){2, 4}, NULL));
    MUST(duet_tensor_create(&X36, d, DUET_F32, 2, (int[]){2, 36}, NULL));
    MUST(duet_tensor_create(&labels, d, DUET_I32, 1, (int[]){2}, NULL));
}

static void close_all(void) {
    duet_tensor_free(X4), duet_tensor_free(X2), duet_tensor_free(X36), duet_tensor_free(labels);
    duet_tape_free(t), duet_params_free(p), duet_devices_close(&d, 1);
}
