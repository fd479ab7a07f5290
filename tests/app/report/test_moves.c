/* What the page plays back of DP: which moves a run has, and what each device holds before and
 * after them. */
#include "tests/harness/harness.h"

#include "report/pictures/moves.h"
#include "tests/app/report/pages.h"

enum { N = 4 };

/* "scatter replicate ...": the moves of the run, of which *found gets all. */
static char *names_of(const struct run_record *r, struct dp_move found[MOST_DP_MOVES]) {
    static char text[128];
    int n = dp_moves_of(r, found);
    *text = 0;
    for (int k = 0; k < n; k++)
        snprintf(text + strlen(text), sizeof text - strlen(text), k ? " %s" : "%s",
                 dp_move_name(&found[k]));
    return text;
}

Test(moves, what_a_step_of_dp_moves, .timeout = 30) {
    struct run_record r = full_record(MODE_DP, N);
    struct dp_move moves[MOST_DP_MOVES];
    cr_expect_str_eq(names_of(&r, moves), "scatter replicate gather scatter_grad reduce");
    for (int k = 0; k < 5; k++)
        cr_expect_eq(moves[k].bytes, 100.0 * (k + 1), "of %d steps: %g", STEPS, moves[k].bytes);
    /* what moved nothing is not shown, and the bytes of all devices count */
    r.device[0].phase_bytes[PHASE_SCATTER_GRAD] = 0;
    r.device[3].phase_bytes[PHASE_REDUCE] = 2000;
    r.loss_in_forward = 1;
    cr_expect_str_eq(names_of(&r, moves), "scatter replicate gather reduce");
    cr_expect_str_eq(moves[2].what, "the losses");
    cr_expect_eq(moves[3].bytes, 700.0);
    r.steps = 0;
    cr_expect_eq(dp_moves_of(&r, moves), 0);
    record_free(&r);
    r = full_record(MODE_DDP, N);
    cr_expect_eq(dp_moves_of(&r, moves), 0);
    record_free(&r);
}

/* What each device shows of each chunk after hop `hop`, a line for each device: "." nothing, a
 * digit the device that it came from, "+" the sum of all. */
static char *shown(const struct dp_move *move, int hop) {
    static char text[N * (N + 1) + 1];
    struct hops hops;
    struct hops_state *state;
    char *at = text;
    cr_assert_eq(dp_move_hops(move, &hops), OK, "%s", error_message());
    cr_assert_eq(hops_state_init(&state, &hops), OK);
    cr_assert_eq(hops_state_run(state, hop), OK, "%s", error_message());
    cr_assert(hops.n == N && hops.chunk_count <= N);
    for (int d = 0; d < N; d++) {
        for (int c = 0; c < hops.chunk_count; c++) {
            uint64_t terms = dp_move_terms(move, c, hops_state_terms(state, d, c));
            int from = 0;
            while (from < N && terms != rank_bit(from))
                from++;
            *at++ = !terms ? '.' : from < N ? (char)('0' + from) : terms == rank_all(N) ? '+' : '?';
        }
        *at++ = ' ';
    }
    at[-1] = 0;
    hops_state_free(state);
    hops_free(&hops);
    return text;
}

Test(moves, who_holds_what, .timeout = 30) {
    struct run_record r = full_record(MODE_DP, N);
    struct dp_move moves[MOST_DP_MOVES];
    dp_moves_of(&r, moves);
    cr_expect_str_eq(shown(&moves[0], 0), "0000 .... .... ....");
    cr_expect_str_eq(shown(&moves[0], 1), "0000 .0.. ..0. ...0");
    cr_expect_str_eq(shown(&moves[1], 0), "0 . . .");
    cr_expect_str_eq(shown(&moves[1], 1), "0 0 0 0");
    cr_expect_str_eq(shown(&moves[2], 0), "0... .1.. ..2. ...3");
    cr_expect_str_eq(shown(&moves[2], 1), "0123 .1.. ..2. ...3");
    cr_expect_str_eq(shown(&moves[4], 0), "0 1 2 3");
    cr_expect_str_eq(shown(&moves[4], 1), "+ 1 2 3");
    /* another output device gathers and scatters, and device 0 still adds */
    r.output_device = 2;
    dp_moves_of(&r, moves);
    cr_expect_str_eq(shown(&moves[0], 1), "0000 .0.. ..0. ...0");
    cr_expect_str_eq(shown(&moves[2], 1), "0... .1.. 0123 ...3");
    cr_expect_str_eq(shown(&moves[3], 0), ".... .... 2222 ....");
    cr_expect_str_eq(shown(&moves[3], 1), "2... .2.. 2222 ...2");
    cr_expect_str_eq(shown(&moves[4], 1), "+ 1 2 3");
    /* the others add up their shards, then device 0 copies the sums */
    strcpy(r.dp_reduce, "sharded");
    dp_moves_of(&r, moves);
    cr_expect_str_eq(shown(&moves[4], 0), "000 111 222 333");
    cr_expect_str_eq(shown(&moves[4], 1), "000 +11 2+2 33+");
    cr_expect_str_eq(shown(&moves[4], 2), "+++ +11 2+2 33+");
    /* two samples on four devices; by PyTorch's rule five on four are 2, 2, 1 and 0 */
    r.batch_size = 2;
    dp_moves_of(&r, moves);
    cr_expect_str_eq(shown(&moves[0], 1), "00 .0 .. ..");
    cr_expect_str_eq(shown(&moves[2], 1), "0. .1 01 ..");
    r.batch_size = 5, r.virtual_devices = 0;
    dp_moves_of(&r, moves);
    cr_expect_str_eq(shown(&moves[0], 1), "000 .0. ..0 ...");
    record_free(&r);
}
