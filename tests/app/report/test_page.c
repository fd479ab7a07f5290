/* Tests the page of --report with handmade records: computed values are right, names are escaped,
 * and the page is valid whatever is missing. tests/app/cli/test_report.c has pages of real runs. */
#include <math.h>
#include <sys/stat.h>

#include "report/pictures/draw.h"
#include "report/pictures/window.h"
#include "tests/harness/scratch.h"
#include "tests/harness/text.h"
#include "tests/app/report/pages.h"

/* Every element that was opened is closed, in order, but for those that HTML never closes; and
 * quotes of attributes are paired. */
static void is_well_formed(const char *html) {
    static const char *const alone[] = {"meta", "link", "!DOCTYPE"};
    char open[64][24];
    int depth = 0;
    for (const char *at = html; (at = strchr(at, '<')); at++) {
        char name[24];
        int closes = at[1] == '/', is_alone = 0;
        if (sscanf(at + 1 + closes, "%23[a-zA-Z0-9!]", name) != 1) cr_assert_fail("%.60s", at);
        const char *end = at;
        for (int quoted = 0; *end && (quoted || *end != '>'); end++)
            quoted ^= *end == '"';
        cr_assert(*end, "%.60s", at);
        for (int i = 0; i < 3; i++)
            is_alone |= !strcmp(name, alone[i]);
        if (closes) {
            cr_assert(depth && !strcmp(open[--depth], name), "</%s> closes <%s>", name,
                      depth < 64 ? open[depth] : "");
        } else if (!is_alone && end[-1] != '/') {
            cr_assert_lt(depth, 64);
            strcpy(open[depth++], name);
        }
        at = end;
        if (closes || (strcmp(name, "script") && strcmp(name, "style"))) continue;
        char close[32];
        snprintf(close, sizeof close, "</%s>", name);
        at = strstr(end, close) - 1; /* its content is not HTML */
    }
    cr_assert_eq(depth, 0, "<%s> is not closed", open[0]);
}

static void check_page(struct page *page, const char *has_word, const char *has_not) {
    size_t bytes;
    char *text = page_text(page, &bytes);
    is_well_formed(text);
    cr_expect_eq(count_of(text, "<section id="), 8);
    cr_expect(strstr(text, has_word), "no '%s'", has_word);
    cr_expect(!has_not || !strstr(text, has_not), "'%s'", has_not);
    cr_expect_lt(bytes, 2000000);
    /* a loss in a table may be NaN, but no coordinate of a picture may */
    cr_expect(!strstr(text, "=\"nan") && !strstr(text, "=\"-nan") && !strstr(text, "Mnan") &&
                  !strstr(text, ",nan"),
              "a place is no number");
    free(text);
}

static struct run_record runs[3];

static struct page three_runs(int devices) {
    struct page page = {.count = 3};
    static const enum run_mode modes[] = {MODE_SINGLE, MODE_DP, MODE_DDP};
    for (int i = 0; i < 3; i++) {
        runs[i] = full_record(modes[i], i ? devices : 1);
        page.run[i] = (struct page_run){.title = mode_title(modes[i]), .run = &runs[i]};
    }
    return page;
}

static void free_runs(void) {
    for (int i = 0; i < 3; i++)
        record_free(&runs[i]);
}

/* Names with HTML in them appear on the page as text. */
Test(page, names_are_escaped, .timeout = 30) {
    struct page page = three_runs(4);
    size_t bytes;
    page.run[1].title = "<img src=x onerror=alert(1)>";
    page.run[1].judged = PAGE_APART, page.run[1].verdict = "<script>x</script>\n";
    page.stopped = "ended \"by\" <signal> 2";
    check_page(&page, "&#60;img src=x onerror=alert(1)&#62;", "<img");
    char *text = page_text(&page, &bytes);
    cr_expect(!strstr(text, "<i>m</i>") && !strstr(text, "<b>conv"));
    cr_expect(strstr(text, "&#60;i&#62;m"));
    cr_expect(!strstr(text, "<script") && strstr(text, "&#60;script&#62;x"));
    free(text);
    free_runs();
}

/* 64 devices that all send to all: the page is whole, and not too large. */
Test(page, many_devices, .timeout = 60) {
    struct page page = three_runs(64);
    for (int a = 0; a < 64; a++)
        for (int b = 0; b < 64; b++)
            if (a != b) traffic_add(runs[2].traffic, a, b, 700 * (uint64_t)(1 + (b > 40)));
    check_page(&page, "4032 links, not drawn", "nan to");
    check_page(&page, "DDP: figures for each device", NULL);
    free_runs();
}

/* Losses that agree in many digits have long labels, which stay inside the picture. */
Test(page, labels_of_values_fit, .timeout = 30) {
    struct page page = three_runs(2);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < runs[i].steps; k++)
            runs[i].losses[k] = 12.30259 + 0.000013 * k;
    size_t bytes;
    char *text = page_text(&page, &bytes), *at = strstr(text, "class=\"loss narrow\"");
    cr_assert_not_null(at);
    *strstr(at, "</svg>") = 0;
    int labels = 0;
    while ((at = strstr(at, "<text x=\"")) != NULL) {
        double x = strtod(at + 9, NULL);
        if (!strncmp(strchr(at, '>'), ">12.30", 6)) { /* ends at x; 8 digits of 12 px are 60 wide */
            cr_expect(x > 60 && strstr(at, "quiet end") < strchr(at, '>'), "%.80s", at);
            labels++;
        }
        at += 9;
    }
    cr_expect_geq(labels, 3);
    free(text);
    free_runs();
}

/* The verdict has the command's own lines, and the sentences and the table of duet profile. */
Test(page, says_what_the_commands_say, .timeout = 30) {
    struct page page = three_runs(4);
    page.run[2].judged = PAGE_EQUAL, page.run[2].verdict = "DDP = single: identical\n";
    check_page(&page, "<p class=\"equal\">DDP = single: identical", "was trained on");
    check_page(&page, "<li>At its peak, device 0 of DP holds 4 MiB more", NULL);
    check_page(&page, "<li>With DDP instead of DP, device 0 holds as much", "are modelled");
    strcpy(runs[0].modelled, "1 x v100"), strcpy(runs[2].modelled, "4 x v100");
    check_page(&page, "DDP, modelled: 4 x v100", NULL);
    check_page(&page, "<th scope=\"col\">device 0</th>", NULL);
    page.run[2].judged = PAGE_NOT_JUDGED;
    check_page(&page, "was trained on the data set a&#38;b", "identical");
    free_runs();
}

/* After one epoch there is one accuracy, after one step one loss, and a chart of one point would
 * show nothing: it is in the tables alone. */
Test(page, one_point_is_no_chart, .timeout = 60) {
    struct page page = three_runs(2);
    for (int i = 0; i < 3; i++)
        runs[i].epoch_count = 1;
    size_t bytes;
    char *text = page_text(&page, &bytes);
    cr_expect(!strstr(text, "class=\"accuracy wide\"") && strstr(text, "test accuracy"));
    cr_expect(strstr(text, "class=\"loss wide\""));
    free(text);
    for (int i = 0; i < 3; i++)
        runs[i].steps = 1;
    text = page_text(&page, &bytes);
    cr_expect(!strstr(text, "class=\"loss wide\"") && strstr(text, "last loss"));
    free(text);
    free_runs();
}

Test(page, what_is_missing_is_said, .timeout = 60) {
    struct page page = three_runs(2);
    page.run[1].run = NULL, page.run[1].missing = "out of <memory>";
    check_page(&page, "DP is missing: out of &#60;memory&#62;", NULL);
    page.stopped = "ended by signal 2";
    check_page(&page, "Stopped early: ended by signal 2", NULL);
    check_page(&page, "The command ended before two runs could be compared.", NULL);
    page.run[0].run = page.run[2].run = NULL;
    check_page(&page, "Nothing was measured", NULL);
    free_runs();
    /* a run without a step */
    page = three_runs(2);
    for (int i = 0; i < 3; i++) {
        span_log_free(&runs[i].kept);
        runs[i].steps = runs[i].epoch_count = runs[i].samples = 0;
        runs[i].training_seconds = 0;
        /* a run resumed at its end is only evaluated */
        struct span s = {.phase = PHASE_EVALUATE, .start_ns = 10, .end_ns = 20};
        span_log_init(&runs[i].kept, 1), span_add(&runs[i].kept, &s);
    }
    check_page(&page, "DDP made no step.", "id=\"timeline\"");
    free_runs();
    /* without spans, and a loss that is not finite */
    page = three_runs(2);
    for (int i = 0; i < 3; i++) {
        span_log_free(&runs[i].kept);
        runs[i].timed = 0;
        runs[i].losses[3] = NAN, runs[i].losses[4] = INFINITY;
        free(runs[i].traffic), runs[i].traffic = NULL;
    }
    page.stopped = NULL;
    runs[2].spans_lost = 5;
    check_page(&page, "No spans of a step were recorded", "Stopped early");
    check_page(&page, "the loss is not finite since step 3", NULL);
    check_page(&page, "5 spans were lost", NULL);
    free_runs();
}

/* Steps of 100 ns, others of 5000 and more: one of the usual length is shown, without the wait that
 * on the modelled clock begins in the step before, and with the copy of the next batch. */
Test(page, the_window_is_a_usual_step, .timeout = 30) {
    static const int64_t lengths[] = {9000, 100, 5000, 100, 101, 100, 1000};
    struct run_record r = {.mode = MODE_SINGLE, .devices = 1, .steps = 7, .modelled = "1 x v100"};
    struct window w;
    int64_t start = 5000000;
    span_log_init(&r.kept, 1);
    r.device[0].step_median_ns = 100;
    for (int step = 0; step < 7; start += lengths[step++]) {
        struct span s = {.step = step, .phase = PHASE_FORWARD, .start_ns = start};
        s.end_ns = start + lengths[step];
        span_add(&r.kept, &s);
        s.step++, s.phase = PHASE_INPUT, s.waiting = 1, s.start_ns += 50;
        span_add(&r.kept, &s);
        s.waiting = 0, s.lane = LANE_COPY;
        span_add(&r.kept, &s);
    }
    cr_assert_eq(window_open(&w, &r), OK);
    cr_expect(w.step == 3 && w.count == 2, "%d, %zu", w.step, w.count);
    cr_expect_eq(w.end_ns - w.start_ns, 100);
    window_free(&w);
    span_log_free(&r.kept);
    cr_assert_eq(window_open(&w, &r), OK);
    cr_expect_eq(w.count, 0);
}

/* ---- pictures ---- */

/* The first that cannot be written is the error. */
Test(page, pictures, .timeout = 30, .init = scratch_make, .fini = scratch_remove) {
    struct page page = three_runs(2);
    struct pictures pictures = {.folder = folder, .no_png = 1};
    cr_assert_eq(mkdir(in("traffic-ddp.svg"), 0777), 0);
    cr_expect_eq(page_pictures(&page, &pictures), ERR_FAILED);
    cr_expect(strstr(error_message(), "traffic-ddp.svg"), "%s", error_message());
    cr_expect(pictures.count > 2 && !pictures.file.file, "%d", pictures.count);
    free_runs();
}
