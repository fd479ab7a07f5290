/* The table of duet scale: see scale_table.h. */
#include "cli/results/scale_table.h"

#include <stdio.h>
#include <string.h>

#include "base/cores.h"
#include "base/text/plain.h"
#include "base/text/text.h"

/* ---- rows ---- */

const char *scale_bits_word(const struct scale_row *row) {
    static const char *const words[] = {"first", "equal", "DIFFER", "-", "-"};
    return words[row->bits];
}

double text_seconds(const struct scale *s, int row) {
    static const struct {
        int devices;
        double seconds;
    } runs[] = {{1, 30}, {2, 20}, {4, 15}, {8, 18}};
    const struct run_config *c = &s->config.run;
    const struct run_record *r = &s->rows[row].run;
    if (strcmp(r->model, "convnet") || r->mode != MODE_DDP || r->batch_size != TEXT_BATCH ||
        r->epochs != 1 || c->steps || c->update.optimizer != OPTIMIZER_ADADELTA ||
        r->train_samples != 60000)
        return 0;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        if (runs[i].devices == r->devices) return runs[i].seconds;
    return 0;
}

static void print_head(const struct scale *s) {
    static const char form[] = "%7s %5s %6s %8s %7s %5s %7s %7s %6s";
    const struct run_record *r = &s->rows[0].run;
    int with_text = text_seconds(s, 0) > 0;
    printf("%s on %s, %s, ", PLAIN(r->model), PLAIN(r->dataset), r->optimizer);
    if (s->config.run.steps)
        printf("at most %d steps", s->config.run.steps);
    else
        printf("%d epoch%s", r->epochs, r->epochs > 1 ? "s" : "");
    printf(", %s, %s devices\n%s%s%s\n", mode_title(r->mode), r->kind,
           *r->modelled ? "times modelled: " : "", r->modelled, *r->modelled ? "\n" : "");
    printf(form, "", "", "", "", "", "speed", "final", "valid_", "test");
    printf("\n");
    printf(form, "devices", "each", "batch", "lr", "seconds", "-up", "loss", "loss", "acc");
    printf("   bits%s\n", with_text ? "  text" : "");
    for (int i = with_text ? 79 : 73; i > 0; i--)
        printf("-");
    printf("\n");
}

/* Prints a loss in seven characters. */
static void print_loss(double loss) {
    printf(" %7.*f", loss < 10 ? 5 : loss < 1000 ? 3 : 0, loss);
}

void scale_table_row(const struct scale *s, int row) {
    const struct run_record *r = &s->rows[row].run;
    double accuracy = record_last_accuracy(r), seconds = text_seconds(s, row);
    int least = r->batch_size / r->devices;
    char each[32];
    if (!row) print_head(s);
    snprintf(each, sizeof each, "%d", least);
    if (r->batch_size % r->devices) snprintf(each, sizeof each, "%d-%d", least, least + 1);
    printf("%7d %5s %6d %8.4g %7.4g %5.2f", r->devices, each, r->batch_size, r->lr,
           r->training_seconds, s->rows[row].speed_up);
    print_loss(r->steps ? r->losses[r->steps - 1] : 0);
    if (accuracy >= 0)
        print_loss(record_last_valid_loss(r)), printf(" %6.4f", accuracy);
    else
        printf(" %7s %6s", "-", "-");
    printf(" %6s", scale_bits_word(&s->rows[row]));
    if (seconds > 0) printf(" %3g s", seconds);
    printf("\n");
    fflush(stdout);
}

/* ---- notes ---- */

/* Why a row has no remark on bits; NULL: it has one. */
static const char *why_no_bits(const struct scale_row *r) {
    if (r->bits == SCALE_BITS_ALONE) return "no other run has the same batch and learning rate";
    if (r->bits != SCALE_BITS_NOT_PROMISED) return NULL;
    return r->verdict.not_finite_at >= 0 ? "losses that are not finite prove nothing"
                                         : r->verdict.why_not;
}

/* Each reason once, with the first row that it belongs to. */
static void print_why_no_bits(const struct scale *s) {
    for (int i = 0; i < s->count; i++) {
        const char *why = why_no_bits(&s->rows[i]), *before = NULL;
        for (int k = 0; why && k < i; k++)
            if ((before = why_no_bits(&s->rows[k])) && !strcmp(before, why)) why = NULL;
        if (!why) continue;
        text_say(stdout, text_width(stdout), 0, 2, "bits of %s: -: %s", s->rows[i].title, why);
    }
}

/* Rows come device count by device count, and one row stands for each count. */
static void print_sharing(const struct scale *s) {
    int shared = 0, cores = usable_cores();
    for (int i = 0; i < s->count; i += s->config.rates) {
        const struct run_record *r = &s->rows[i].run;
        int of = r->gpus ? r->gpus : cores;
        if (*r->modelled || r->devices <= of) continue;
        printf("%s%d devices on %d %s%s", shared++ ? ", " : "", r->devices, of,
               r->gpus ? "GPU" : "core", of > 1 ? "s" : "");
    }
    if (shared)
        printf(": devices that share\na core or GPU speed up less than devices with one each\n");
}

/* The best of the rows from `first` on that have one device count. */
static void print_best_rate(const struct scale *s, int first) {
    const struct run_record *best = &s->rows[first].run;
    int equal = 0;
    for (int i = first + 1; i < first + s->config.rates; i++) {
        const struct run_record *r = &s->rows[i].run;
        double more = record_last_accuracy(r) - record_last_accuracy(best);
        equal = more > 0 ? 0 : equal + (more == 0);
        if (more > 0) best = r;
    }
    if (record_last_accuracy(best) < 0) return;
    printf("%d device%s: best test accuracy %.4f at learning rate %.4g", best->devices,
           best->devices > 1 ? "s" : "", record_last_accuracy(best), best->lr);
    if (equal) printf(", as at %d other%s", equal, equal > 1 ? "s" : "");
    printf("\n");
}

void scale_table_notes(const struct scale *s) {
    int equal = 0, compared = 0;
    for (int i = 0; i < s->count; i++) {
        equal += s->rows[i].bits == SCALE_BITS_EQUAL;
        compared += s->rows[i].first != i;
    }
    printf("\n");
    if (equal)
        printf("%d run%s equal, to the bit, to the first with the same batch and rate, at\n"
               "every step on every device\n",
               equal, equal > 1 ? "s are" : " is");
    if (compared)
        print_why_no_bits(s);
    else
        printf("bits: no two runs have the same batch and learning rate\n");
    print_sharing(s);
    if (text_seconds(s, 0) > 0)
        printf("text: seconds on the machine of the tutorial that this model comes from\n"
               "(28 to 30 with 1 process)\n");
    for (int i = 0; s->config.rates > 1 && i < s->count; i += s->config.rates)
        print_best_rate(s, i);
    fflush(stdout);
}
