/* The table of duet scale: see scale_table.h. */
#include "report/scale_table.h"

enum { WIDTH = 73, PUBLISHED_WIDTH = 6 };

void scale_table_head(FILE *file, int published) {
    static const char form[] = "%7s %5s %6s %8s %7s %5s %7s %7s %6s";
    fprintf(file, form, "", "", "", "", "", "speed", "final", "valid_", "test");
    fputc('\n', file);
    fprintf(file, form, "devices", "each", "batch", "lr", "seconds", "-up", "loss", "loss", "acc");
    fprintf(file, "   bits%s\n", published ? "  text" : "");
    for (int i = 0; i < WIDTH + (published ? PUBLISHED_WIDTH : 0); i++)
        fputc('-', file);
    fputc('\n', file);
}

static double last_loss(const struct run_record *r) {
    return r->steps ? r->losses[r->steps - 1] : 0;
}

/* Behind the point, so that a loss takes seven places. */
static int digits(double loss) {
    return loss < 10 ? 5 : loss < 1000 ? 3 : 0;
}

void scale_table_line(FILE *file, const struct scale_line *line, int published) {
    const struct run_record *r = line->run;
    double accuracy = record_last_accuracy(r);
    int least = r->batch_size / r->devices;
    char each[32];
    snprintf(each, sizeof each, "%d", least);
    if (r->batch_size % r->devices) snprintf(each, sizeof each, "%d-%d", least, least + 1);
    fprintf(file, "%7d %5s %6d %8.4g %7.4g %5.2f %7.*f", r->devices, each, r->batch_size, r->lr,
            r->training_seconds, line->speed_up, digits(last_loss(r)), last_loss(r));
    double valid = record_last_valid_loss(r);
    if (accuracy >= 0)
        fprintf(file, " %7.*f %6.4f", digits(valid), valid, accuracy);
    else
        fprintf(file, " %7s %6s", "-", "-");
    fprintf(file, " %6s", line->bits);
    if (published && line->published) fprintf(file, " %3g s", line->published);
    fprintf(file, "\n");
}

/* Lines come device count by device count: 1 where line i is the first of its count. */
static int is_new_count(const struct scale_line *lines, int i) {
    return !i || lines[i].run->devices != lines[i - 1].run->devices;
}

void scale_sharing(FILE *file, const struct scale_line *lines, int count, int cores) {
    int shared = 0;
    for (int i = 0; i < count; i++) {
        const struct run_record *r = lines[i].run;
        int of = r->gpus ? r->gpus : cores;
        if (*r->modelled || r->devices <= of || !is_new_count(lines, i)) continue;
        fprintf(file, "%s%d devices on %d %s%s", shared++ ? ", " : "", r->devices, of,
                r->gpus ? "GPU" : "core", of > 1 ? "s" : "");
    }
    if (!shared) return;
    fprintf(file, ": these share them, so\ntheir speed-up is not that of devices with one each\n");
}

/* `equal`: how many other rates reach the same accuracy. */
static void print_best(FILE *file, const struct run_record *best, int equal) {
    fprintf(file, "%d device%s: best test accuracy %.4f at learning rate %.4g", best->devices,
            best->devices > 1 ? "s" : "", record_last_accuracy(best), best->lr);
    if (equal) fprintf(file, ", as at %d other%s", equal, equal > 1 ? "s" : "");
    fprintf(file, "\n");
}

void scale_best_rates(FILE *file, const struct scale_line *lines, int count) {
    int several = 0, equal = 0;
    for (int i = 1; i < count; i++)
        several |= !is_new_count(lines, i);
    const struct run_record *best = NULL;
    for (int i = 0; several && i < count; i++) {
        const struct run_record *r = lines[i].run;
        if (record_last_accuracy(r) < 0) return;
        if (best && is_new_count(lines, i)) print_best(file, best, equal);
        if (is_new_count(lines, i) || record_last_accuracy(r) > record_last_accuracy(best))
            best = r, equal = 0;
        else
            equal += record_last_accuracy(r) == record_last_accuracy(best);
    }
    if (best) print_best(file, best, equal);
}
