/* Fits the numbers of a machine in clock/hardware.txt to its rows with role f, and to no others:
 *
 *     build/bench/clock_fit MACHINE [KEY...]
 *
 * KEY: forward, backward, replicate, pageable, scale, exposed, hook. Each is moved up and down by a
 * shrinking factor, to where the sum of squared relative errors is least. The program prints the
 * machine's line, the rows that it was fitted to, and their errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "train/validation.h"

enum { MOST_ROWS = 64, MOST_KEYS = 10 };

struct row {
    const struct series *series;
    const struct series_point *point;
    struct modelled run;
    struct clock_config clock;
    double given; /* if the row has one GPU's time: the factor on kernels that yields it; else 0 */
    double ms;
};

struct fit {
    struct series *all; /* for the whole program */
    struct row row[MOST_ROWS];
    int rows;
    struct machine machine;
};

static double error_of(struct fit *f) {
    double sum = 0;
    struct clock_result result;
    for (int i = 0; i < f->rows; i++) {
        struct row *r = &f->row[i];
        r->clock.machine = &f->machine;
        r->clock.given = r->given / f->machine.scale;
        if (modelled_time(&r->run, &r->clock, &result, NULL)) exit(1);
        r->ms = (double)result.step_ns * 1e-6;
        double e = log(r->ms / r->point->ms);
        sum += e * e;
    }
    return sum;
}

static double *number_of(struct machine *m, const char *key) {
    const struct {
        const char *name;
        double *at;
    } keys[MOST_KEYS] = {{"forward", &m->forward_us},
                         {"backward", &m->backward_us},
                         {"replicate", &m->replicate_us},
                         {"pageable", &m->pageable_gbs},
                         {"scale", &m->scale},
                         {"exposed", &m->exposed},
                         {"hook", &m->hook_us},
                         {"sum", &m->sum_gbs},
                         {"links", &m->links}};
    for (int i = 0; i < MOST_KEYS; i++)
        if (!strcmp(keys[i].name, key)) return keys[i].at;
    fprintf(stderr, "clock_fit: %s: there is no such key\n", key);
    exit(2);
}

/* One GPU with a large batch is bound by its kernels. */
static int find_given(struct row *r, const struct series *s) {
    struct modelled one;
    struct clock_result result = {.step_ns = 1};
    int code = validation_open(&one, s, &s->point[0], &r->clock);
    if (!code) code = modelled_time(&one, &r->clock, &result, NULL);
    modelled_close(&one);
    r->given = s->point[0].ms / ((double)result.step_ns * 1e-6) * r->clock.machine->scale;
    return code;
}

static int load(struct fit *f, const char *name, const struct hardware *h) {
    const struct machine *m = NULL;
    const struct gpu_spec *gpu = NULL;
    CHECK(series_read(&f->all));
    CHECK(hardware_find_machine(h, "clock_fit", name, &m));
    CHECK(hardware_find_gpu(h, "clock_fit", m->gpu, &gpu));
    f->machine = *m;
    for (const struct series *s = f->all; *s->table; s++)
        for (int k = 0; k < SERIES_POINTS && s->point[k].ms > 0; k++) {
            const struct series_point *p = &s->point[k];
            if (strcmp(s->machine, name) || p->role != 'f') continue;
            if (f->rows == MOST_ROWS) continue;
            struct row *r = &f->row[f->rows++];
            r->series = s;
            r->point = p;
            r->clock.gpu = gpu;
            r->clock.machine = m;
            if (s->point[0].role == 'g') CHECK(find_given(r, s));
            CHECK(validation_open(&r->run, s, p, &r->clock));
        }
    return OK;
}

int main(int argc, char **argv) {
    static struct fit f;
    struct hardware *h;
    if (argc < 2 || hardware_open(&h, NULL) || load(&f, argv[1], h)) {
        fprintf(stderr, "clock_fit MACHINE [KEY...]: %s\n", error_message());
        return 2;
    }
    double best = error_of(&f);
    for (double step = 0.4; step > 0.01; step *= 0.6)
        for (int moved = 1, turns = 0; moved && turns < 12; turns++) {
            moved = 0;
            for (int k = 2; k < argc; k++)
                for (int up = 0; up < 2; up++) {
                    double *x = number_of(&f.machine, argv[k]), before = *x;
                    *x *= up ? 1 + step : 1 / (1 + step);
                    if (f.machine.exposed > 1) f.machine.exposed = 1;
                    double now = error_of(&f);
                    if (now < best * 0.9999)
                        best = now, moved = 1;
                    else
                        *x = before;
                }
        }
    best = error_of(&f);
    printf("machine %s", argv[1]);
    for (int k = 2; k < argc; k++)
        printf(" %s %.3g", argv[k], *number_of(&f.machine, argv[k]));
    printf("\nroot mean square error %.1f %%\n", 100 * sqrt(best / f.rows));
    for (int i = 0; i < f.rows; i++) {
        struct row *r = &f.row[i];
        printf("  %-3s %-12s %2d GPUs %9.2f %9.2f %+6.1f %%\n", r->series->table, r->series->model,
               r->point->gpus, r->point->ms, r->ms, 100 * (r->ms / r->point->ms - 1));
        modelled_close(&r->run);
    }
    hardware_free(h);
    return 0;
}
