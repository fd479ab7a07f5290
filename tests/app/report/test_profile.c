/* Tests the profile of handmade records: every figure has its place and unit, device 0's excess is
 * listed in order, and a difference by chance makes no winner. */
#include <math.h>

#include "report/findings.h"
#include "report/profile_table.h"
#include "tests/app/report/records.h"

static void profile(FILE *file, const struct run_record *run) {
    profile_table(file, 80, "DP", run, 1);
}
static void narrow(FILE *file, const struct run_record *run) {
    profile_table(file, 22, "DP", run, 1);
}

/* No line is longer, unless it is one word. */
static void fits(const char *text, int width) {
    for (const char *line = text; *line;) {
        const char *end = strchr(line, '\n');
        int length = (int)(end - line);
        const char *word = line + strspn(line, " ");
        cr_expect(length <= width || !memchr(word, ' ', (size_t)(end - word)), "%d columns: %.*s",
                  length, length, line);
        cr_expect(!length || end[-1] != ' ', "ends with a space: '%.*s'", length, line);
        line = end + 1;
    }
}

Test(profile, table, .timeout = 30) {
    struct run_record run = make(MODE_DP, 3);
    char *text = text_of(profile, &run);
    has(text, "^DP: 3 devices, global batch 250, 10 steps$");
    has(text, "^ +device 0 +device 1 +device 2$");
    has(text, "^memory at its peak +9 MiB +4 MiB +5 MiB$");
    has(text, "^  activations +7 MiB +2 MiB +3 MiB$");
    has(text, "^bytes in per step +7 MiB +1 MiB +1 MiB$");
    has(text, "^bytes out per step +9 MiB +512 KiB +512 KiB$");
    has(text, "^busy ms per step +6.000 +4.100 +4.200$");
    has(text, "^  optimizer +2.000 +- +-$");
    has(text, "^  \\(waiting for the others\\) +0.500 +- +-$");
    has(text, "^  \\(waiting for a CPU core\\) +0.200 +0.300 +0.400$");
    /* the rest of 200 ms */
    has(text, "^  \\(idle\\) +192.600 +195.600 +195.400$");
    has(text, "^busy share of a step +3 % +2 % +2 %$");
    cr_expect(!strstr(text, "evaluate") && !strstr(text, "proof") && !strstr(text, "allreduce"),
              "%s", text);
    fits(text, 80);
    free(text);
    record_free(&run);
}

/* Makes devices 1 and up equal in all but their times. */
static struct run_record make_equal(enum run_mode mode, int devices) {
    struct run_record r = make(mode, devices);
    for (int d = 2; d < devices; d++)
        r.device[d].memory = r.device[1].memory;
    return r;
}

Test(profile, equal_devices_share_a_column, .timeout = 30) {
    struct run_record run = make_equal(MODE_DP, 8);
    run.cores = 2;
    char *text = text_of(profile, &run);
    has(text, "^DP: 8 devices on 2 cores, ");
    has(text, "^ +device 0 +devices 1-7$");
    has(text, "^memory at its peak +9 MiB +4 MiB$");
    has(text, "^  forward +4.000 +4.400$"); /* the mean of 4.1 to 4.7 */
    fits(text, 80);
    free(text);
    run.device[5].bytes_out += run.device[5].bytes_out / 50; /* 2 % more */
    text = text_of(profile, &run);
    has(text, "^ +device 0 +devices 1-4 +device 5$");
    has(text, "^ +devices 6-7$"); /* below */
    free(text);
    record_free(&run);
}

Test(profile, many_devices_and_few_columns, .timeout = 30) {
    static const int counts[] = {1, 8, 64};
    for (int equal = 0; equal < 2; equal++)
        for (int i = 0; i < 3; i++)
            for (int mode = MODE_DP; mode <= MODE_DDP; mode++) {
                struct run_record run = (equal ? make_equal : make)((enum run_mode)mode, counts[i]);
                char *text = text_of(profile, &run), last[32];
                fits(text, 80);
                snprintf(last, sizeof last, equal && counts[i] > 1 ? "devices 1-%d" : "device %d",
                         counts[i] - 1);
                cr_expect(strstr(text, last), "no '%s' in %s", last, text);
                free(text);
                text = text_of(narrow, &run);
                fits(text, 22);
                has(text, "^memory at its peak$");
                has(text, "^ +9 MiB( |$)");
                free(text);
                record_free(&run);
            }
}

static struct profiled runs;
static void findings(FILE *file, const struct run_record *unused) {
    (void)unused;
    profile_findings_print(file, 80, &runs);
}
static void narrow_findings(FILE *file, const struct run_record *unused) {
    (void)unused;
    profile_findings_print(file, 20, &runs);
}

static char *one_line(char *text) {
    for (char *p = text, *to = text;; p++) {
        while (*p == '\n' && p[1] == ' ' && p[2] == ' ')
            p += 2;
        if (!(*to++ = *p)) return text;
    }
}

Test(profile, findings, .timeout = 30) {
    struct run_record dp = make_equal(MODE_DP, 4), lif = make_equal(MODE_DP, 4),
                      ddp = make_equal(MODE_DDP, 4);
    struct device_record *first = &dp.device[0];
    lif.loss_in_forward = 1;
    dp.cores = lif.cores = ddp.cores = 2;
    /* of the 5 MiB more than the others, 3 are outputs, 1 is input and 1 the optimizer's */
    first->memory.at_peak[MEM_ACTIVATIONS] -= 5 * MIB;
    first->memory.at_peak[MEM_GATHERED] = 3 * MIB;
    first->memory.at_peak[MEM_INPUT] = first->memory.at_peak[MEM_OPTIMIZER] = MIB;
    first->phase_ns[PHASE_GATHER] = 10000000;
    first->busy_ns += 10000000;
    lif.device[0].memory.total_peak = 6 * MIB;
    for (int d = 0; d < 4; d++)
        ddp.device[d].memory.total_peak = 5 * MIB,
        ddp.device[d].memory.at_peak[MEM_OPTIMIZER] = MIB;
    ddp.parameter_count = ddp.trainable_count = 1000;
    first->step_median_ns = 9000000, ddp.device[0].step_median_ns = 8000000;
    first->step_spread_ns = 300000, ddp.device[0].step_spread_ns = 400000;
    runs = (struct profiled){.dp = &dp, .loss_in_forward = &lif, .ddp = &ddp, .details = 1};
    struct ledger pytorch[4] = {{.total_peak = 0}};
    uint64_t saved[4] = {2 * MIB};
    for (int d = 0; d < 4; d++)
        pytorch[d].total_peak = 4 * MIB, pytorch[d].at_peak[MEM_ACTIVATIONS] = 3 * MIB;
    runs.dp_beside = runs.ddp_beside =
        (struct beside_pytorch){.devices = 4, .pytorch = pytorch, .saved = saved};
    runs.dp_beside.title = "DP";
    runs.dp_beside.duet = &dp;
    runs.ddp_beside.duet = &ddp;
    char *text = text_of(findings, NULL);
    fits(text, 80);
    one_line(text);
    has(text, "holds 5 MiB more than the others on average: outputs \\+3 MiB \\(60 %\\), "
              "optimizer \\+1 MiB \\(20 %\\), batch \\+1 MiB \\(20 %\\)\\.$");
    has(text, "^With the loss in forward, device 0's peak changes by -3 MiB ");
    has(text,
        "^With DDP instead of DP, device 0 holds 4 MiB less .* other device holds 1 MiB more");
    has(text, "and the state of adam: 1 MiB, which DP has on device 0 only\\.$");
    has(text,
        "^PyTorch's DataParallel would hold 4 MiB on device 0, 5 MiB less than Duet: .*batch "
        "-1 MiB \\(scattered from the host\\), outputs -3 MiB \\(computed; --as pytorch\\)\\.$");
    has(text, "^PyTorch's DDP would hold 4 MiB on each device, 1 MiB less than Duet: ");
    has(text,
        "^4 devices share 2 cores, so times show no winner: .* 9.00 ms .DP. and 8.00 ms .DDP");
    cr_expect(!strstr(text, "faster"), "%s", text);
    free(text);
    for (dp.computed = 0; dp.computed < 2; dp.computed++) {
        text = text_of(narrow_findings, NULL);
        fits(text, 22);
        free(text);
    }
    dp.computed = 0;
    /* another program used one of DDP's cores */
    dp.cores = ddp.cores = 4, ddp.device[1].no_core_ns = (int64_t)(ddp.training_seconds * 0.4e9);
    text = one_line(text_of(findings, NULL));
    has(text, "^The machine was busy: DDP waited for a CPU core 40 % of its time: do not trust "
              "these times\\.$");
    has(text,
        "^DDP is faster: its median step takes 8.00 ms, that of DP 9.00 ms \\(spread 0.50 ms\\)");
    cr_expect(!strstr(text, "devices share"), "%s", text);
    free(text);
    ddp.device[1].no_core_ns = 0;
    /* the medians are less than their spread apart, and no optimizer state */
    first->step_median_ns = 8400000;
    for (int d = 0; d < 4; d++)
        ddp.device[d].memory.at_peak[MEM_OPTIMIZER] = 0;
    text = one_line(text_of(findings, NULL));
    has(text, "^No clear winner: median steps are 8.40 ms \\(DP\\) and 8.00 ms \\(DDP\\)");
    free(text);
    /* modelled: steps have no spread, and GPU 0 and the others are compared */
    snprintf(dp.modelled, sizeof dp.modelled, "4 x v100, if gil=off");
    snprintf(ddp.modelled, sizeof ddp.modelled, "4 x v100");
    first->step_spread_ns = ddp.device[0].step_spread_ns = 0;
    for (runs.details = 0; runs.details < 2; runs.details++) {
        text = one_line(text_of(findings, NULL));
        has(text, "is faster: its modelled step takes 8.00 ms, that of D?P 8.40 ms\\.");
        has(text, "^In DP, GPU 0 computes or copies for [34] % of a step, the others for 2 %; .* "
                  "to be launched; GPU 0 works longer by optimizer 2.0 ms, "
                  "gather 1.0 ms; in DDP, the GPUs compute for 2 %\\.$");
        free(text);
    }
    runs = (struct profiled){.ddp = &ddp, .details = 1};
    text = text_of(findings, NULL);
    cr_expect(!strstr(text, "DP holds") && !strstr(text, "faster"), "%s", text);
    free(text);
    record_free(&dp), record_free(&lif), record_free(&ddp);
}
