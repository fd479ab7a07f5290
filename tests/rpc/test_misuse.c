/* Tests misuse of duet/rpc.h and duet/autograd.h in a world of one worker, which calls itself, with
 * the rules of tests/duet/misuse.h. */
#include "tests/duet/misuse.h"

static int add(duet_rpc_call *call, void *context) {
    (void)context;
    return duet_rpc_return(call, duet_rpc_int(duet_rpc_arg_int(call, 0) + 1));
}

static void destroy(void *object) {
    (void)object;
}

/* Also inside a function: arguments with wrong numbers, and no call. */
static int inside(duet_rpc_call *call, void *context) {
    (void)context;
    mutation = 1, mutated = 1;
    duet_tape *tape;
    SAFE(duet_rpc_arg_count(NULL));
    NOTHING(duet_rpc_arg(NULL, 0));
    NOTHING(duet_rpc_arg_int(NULL, 0));
    NOTHING(duet_rpc_arg_number(NULL, 0));
    NOTHING(duet_rpc_arg_text(NULL, 0));
    NOTHING(duet_rpc_arg_tensor(NULL, 0));
    NOTHING(duet_rpc_arg_rref(NULL, 0));
    NOTHING(duet_rpc_self(O(call)));
    NOTHING(duet_rpc_of_call(O(call)));
    BAD(duet_rpc_call_error(NULL));
    BAD(duet_rpc_return(NULL, duet_rpc_none()));
    BAD(duet_rpc_return_object(NULL, &tape, destroy));
    BAD(duet_autograd_call_pass(&tape, NULL, NULL, 1));
    BAD(duet_autograd_call_pass(NULL, call, NULL, 1));
    NOTHING(duet_autograd_arg(NULL, NULL, 0));
    return DUET_OK;
}

static void values(void) {
    SAFE(duet_rpc_value_free(NULL));
    SAFE((duet_rpc_number(1), duet_rpc_text(NULL), duet_rpc_bytes(NULL, 0)));
    SAFE((duet_rpc_tensor(NULL), duet_rpc_rref(NULL), duet_rpc_list(NULL, 0), duet_rpc_var(NULL)));
}

static void calls(duet_rpc *rpc) {
    const struct duet_rpc_value one = duet_rpc_int(1), no_text = duet_rpc_text(NULL);
    struct duet_rpc_value got = {0};
    duet_future *f;
    NOTHING(duet_rpc_rank(O(rpc), "me") && mutated && duet_rpc_rank(NULL, "me") != -1);
    NOTHING(duet_rpc_name(O(rpc), I(0)));
    BAD(duet_rpc_take_device(NULL, NULL));
    BAD(duet_rpc_take_device(rpc, NULL));
    SAFE(duet_rpc_give_device(NULL, NULL));
    CODE(duet_rpc_sync(O(rpc), O("me"), O("add"), bad(1) ? &no_text : &one, I(1), R(5), &got));
    CODE(duet_rpc_async(O(&f), O(rpc), O("me"), O("add"), &one, I(1), R(5)));
    CODE(duet_future_wait(O(f), NULL));
    CODE(duet_future_wait_all(O(&f), I(1)));
    SAFE(duet_future_free(O(f)));
    CODE(duet_rpc_sync(rpc, "me", "inside", DUET_ARGS(one), 5, NULL));
}

static void references(duet_rpc *rpc) {
    const struct duet_rpc_value one = duet_rpc_int(1);
    struct duet_rpc_value got = {0};
    const struct duet_rpc_value *local;
    duet_rref *r, *made;
    duet_future *f;
    CODE(duet_rref_create(O(&made), O(rpc), duet_rpc_int(1)));
    CODE(duet_rref_local_value(O(made), O(&local)));
    SAFE(duet_rref_free(O(made)));
    CODE(duet_rref_create_param(O(&made), O(rpc), O(p), I(0)));
    SAFE(duet_rref_free(made));
    BAD(duet_rref_create_object(NULL, rpc, "Thing", &got, destroy));
    BAD(duet_rref_create_object(&made, NULL, "Thing", &got, destroy));
    CODE(duet_remote(O(&r), O(rpc), O("me"), O("add"), &one, I(1), R(5)));
    CODE(duet_rref_wait(O(r), R(5)));
    CODE(duet_rref_to_here(O(r), R(5), O(&got)));
    SAFE(duet_rref_owner(O(r)));
    BAD(duet_rref_sync(NULL, "m", DUET_NO_ARGS, 5, NULL));
    BAD(duet_rref_sync(r, NULL, DUET_NO_ARGS, 5, NULL));
    BAD(duet_rref_async(&f, NULL, "m", DUET_NO_ARGS, 5));
    SAFE(duet_rref_free(O(r)));
}

#define RESERVED(call) MUST_FAIL(call, DUET_USAGE, "names that begin with 'duet.' are reserved")

/* A program neither calls nor makes what is the library's own. */
static void librarys_own(duet_rpc *rpc, duet_tape *tape, const char *name) {
    duet_future *f;
    duet_rref *r, *made;
    MUST(duet_rref_create(&made, rpc, duet_rpc_int(1)));
    RESERVED(duet_rpc_sync(rpc, "me", name, DUET_NO_ARGS, 5, NULL));
    RESERVED(duet_remote(&r, rpc, "me", name, DUET_NO_ARGS, 5));
    RESERVED(duet_rref_async(&f, made, name, DUET_NO_ARGS, 5));
    RESERVED(duet_rref_create_object(&r, rpc, name, made, NULL));
    RESERVED(duet_autograd_sync(tape, "me", name, DUET_NO_ARGS, 5, NULL));
    RESERVED(duet_autograd_rref_sync(tape, made, name, DUET_NO_ARGS, 5, NULL));
    duet_rref_free(made);
}

static void gradients(duet_rpc *rpc) {
    duet_autograd_context *c;
    duet_tape *tape;
    duet_rref *r = NULL;
    duet_future *f;
    duet_tensor *grad;
    struct duet_rpc_value got = {0};
    duet_var *roots[1] = {NULL};
    struct duet_optimizer_options how;
    duet_distributed_optimizer *o;
    MUST(duet_optimizer_defaults(&how, "sgd"));
    CODE(duet_autograd_context_create(O(&c), O(rpc)));
    CODE(duet_autograd_pass(O(&tape), O(c), p, I(2)));
    BAD(duet_autograd_keep(NULL, X2));
    BAD(duet_autograd_keep(tape, NULL));
    BAD(duet_autograd_sync(NULL, "me", "add", DUET_NO_ARGS, 5, NULL));
    BAD(duet_autograd_async(&f, NULL, "me", "add", DUET_NO_ARGS, 5));
    BAD(duet_autograd_rref_sync(tape, r, "m", DUET_NO_ARGS, 5, NULL));
    BAD(duet_autograd_to_here(tape, NULL, 5, &got));
    BAD(duet_autograd_backward(c, roots, 1, 0));
    BAD(duet_autograd_backward(c, NULL, 1, 0));
    BAD(duet_autograd_backward(c, roots, INT_MAX, 0));
    BAD(duet_autograd_backward(NULL, roots, 1, 0));
    BAD(duet_autograd_gradients(&grad, c, p, 99));
    BAD(duet_autograd_gradients(&grad, NULL, p, 0));
    BAD(duet_distributed_optimizer_create(&o, rpc, NULL, 1, &how));
    BAD(duet_distributed_optimizer_create(&o, NULL, &r, 1, &how));
    BAD(duet_distributed_optimizer_create(&o, rpc, &r, 1, &how));
    BAD(duet_distributed_optimizer_step(NULL, c));
    SAFE(duet_distributed_optimizer_free(NULL));
    librarys_own(rpc, tape, "duet.nothing");
    librarys_own(rpc, tape, "duet.to_here");
    SAFE(duet_autograd_context_free(O(c)));
}

/* Functions that no worker can have. */
static void functions_of_init(void) {
    static const struct {
        struct duet_rpc_function function;
        const char *words;
    } wrong[] = {{{.name = NULL, .run = add}, "give a function, and a name"},
                 {{.name = "a b", .run = add}, "give a function, and a name"},
                 {{.name = "other", .run = NULL}, "give a function, and a name"},
                 {{.name = "duet.x", .run = add}, "reserved"},
                 {{.name = "add", .run = add}, "already registered"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct duet_rpc_function two[] = {{.name = "add", .run = add}, wrong[i].function};
        duet_rpc *rpc = NULL;
        const struct duet_rpc_options how = {.functions = two, .function_count = 2};
        MUST_FAIL(duet_rpc_init(&rpc, "me", 0, 1, &how), DUET_USAGE, wrong[i].words);
        cr_assert_null(rpc);
    }
}

Test(misuse, remote_calls, .timeout = 60) {
    open_all();
    const struct duet_rpc_function functions[] = {{.name = "add", .run = add},
                                                  {.name = "inside", .run = inside}};
    const struct duet_rpc_options how = {
        .functions = functions, .function_count = 2, .device = d, .timeout_s = 20};
    duet_rpc *rpc = NULL;
    setenv("MASTER_PORT", "29877", 1);
    BAD(duet_rpc_init(NULL, "me", 0, 1, &how));
    BAD(duet_rpc_init(&rpc, NULL, 0, 1, &how));
    BAD(duet_rpc_init(&rpc, "me", 9, 1, &how));
    BAD(duet_rpc_init(&rpc, "me", 0, INT_MAX, &how));
    functions_of_init();
    MUST(duet_rpc_init(&rpc, "me", 0, 1, &how));
    values();
    calls(rpc);
    references(rpc);
    gradients(rpc);
    SAFE(duet_rpc_shutdown(NULL, 1, 5));
    MUST(duet_rpc_shutdown(&rpc, 1, 5));
    close_all();
}
