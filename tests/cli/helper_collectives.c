/* A program of process groups that never ends by itself: one collective again and again, checked
 * each time, until somebody ends a rank. tests/cli/test_run_kills.c starts it under `duet run`.
 *
 *     helper_collectives CALL|all COUNT TIMEOUT [begun]
 *
 * COUNT: elements of a block. begun: the calls have handles, so threads of the group run them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "duet.h"

struct job {
    duet_group *group;
    int n, rank, count, begun;
    duet_tensor *one, *result, *many, *results; /* one and many: ones; the others are written to */
    duet_work *work;
};

/* The handle of the next call: NULL where it is to be waited for at once. */
static duet_work **handle(struct job *j) {
    return j->begun ? &j->work : NULL;
}

static int all_reduce(struct job *j) {
    int code = duet_tensor_copy(j->result, j->one);
    return code ? code : duet_all_reduce(j->group, j->result, DUET_SUM, handle(j));
}

static int reduce(struct job *j) {
    int code = duet_tensor_copy(j->result, j->one);
    return code ? code : duet_reduce(j->group, j->result, j->n - 1, DUET_SUM, handle(j));
}

static int broadcast(struct job *j) {
    return duet_broadcast(j->group, j->one, j->n - 1, handle(j));
}

static int all_gather(struct job *j) {
    return duet_all_gather(j->group, j->results, j->one, NULL, handle(j));
}

static int gather(struct job *j) {
    return duet_gather(j->group, j->rank ? NULL : j->results, j->one, NULL, 0, handle(j));
}

static int scatter(struct job *j) {
    return duet_scatter(j->group, j->result, j->rank ? NULL : j->many, NULL, 0, handle(j));
}

static int reduce_scatter(struct job *j) {
    return duet_reduce_scatter(j->group, j->result, j->many, NULL, DUET_SUM, handle(j));
}

static int all_to_all(struct job *j) {
    return duet_all_to_all(j->group, j->results, j->many, NULL, NULL, handle(j));
}

/* Around a ring: every rank sends to the next one and receives from the one before. */
static int send_recv(struct job *j) {
    duet_work *sent = NULL;
    int code = duet_send(j->group, j->one, (j->rank + 1) % j->n, 0, &sent);
    if (!code)
        code = duet_recv(j->group, j->result, (j->rank + j->n - 1) % j->n, 0, NULL, handle(j));
    if (!code) code = duet_work_wait(sent);
    duet_work_free(sent);
    return code;
}

/* All others send to rank 0, which takes what comes first. Without the barrier one of them could
 * send for all. */
static int recv_any(struct job *j) {
    int code = j->rank ? duet_send(j->group, j->one, 0, 0, NULL) : DUET_OK;
    for (int r = 1; r < j->n && !j->rank && !code; r++)
        code = duet_recv(j->group, j->result, DUET_ANY_SOURCE, 0, NULL, NULL);
    return code ? code : duet_barrier(j->group, handle(j));
}

static int barrier(struct job *j) {
    return duet_barrier(j->group, handle(j));
}

static int monitored(struct job *j) {
    return duet_monitored_barrier(j->group, 0, 1);
}

/* Rank r gets r times as much of everybody as rank 1. */
static int all_to_all_uneven(struct job *j) {
    int gives[DUET_MAX_DEVICES], expects[DUET_MAX_DEVICES], unit = j->count / j->n, code;
    duet_tensor *in = NULL, *out = NULL;
    for (int r = 0; r < j->n; r++)
        gives[r] = r * unit, expects[r] = j->rank * unit;
    code = duet_tensor_rows(&in, j->many, 0, unit * j->n * (j->n - 1) / 2);
    if (!code) code = duet_tensor_rows(&out, j->results, 0, unit * j->n * j->rank);
    if (!code) code = duet_all_to_all(j->group, out, in, expects, gives, handle(j));
    if (!code && j->work) code = duet_work_wait(j->work);
    duet_tensor_free(in);
    duet_tensor_free(out);
    return code;
}

static int objects(struct job *j) {
    struct duet_object mine = {"object", (size_t)j->count % 7}, list[DUET_MAX_DEVICES];
    int code = duet_all_gather_object(j->group, list, &mine);
    for (int r = 0; r < j->n && !code; r++)
        free(list[r].data);
    return code;
}

static const struct {
    const char *name;
    int (*call)(struct job *);
} calls[] = {{"all_reduce", all_reduce},
             {"reduce", reduce},
             {"broadcast", broadcast},
             {"all_gather", all_gather},
             {"gather", gather},
             {"scatter", scatter},
             {"reduce_scatter", reduce_scatter},
             {"all_to_all", all_to_all},
             {"all_to_all_uneven", all_to_all_uneven},
             {"objects", objects},
             {"send_recv", send_recv},
             {"recv_any", recv_any},
             {"barrier", barrier},
             {"monitored_barrier", monitored}};
enum { CALLS = sizeof calls / sizeof *calls };

/* Every input is ones, so every result is ones or the number of ranks. */
static int check(const struct job *j, const char *name, const duet_tensor *t, float *x) {
    int code = duet_tensor_read(t, x);
    for (size_t i = 0; i < duet_tensor_count(t) && !code; i++)
        if (x[i] != 0 && x[i] != 1 && x[i] != (float)j->n) {
            fprintf(stderr, "rank %d: %s: element %zu is %g\n", j->rank, name, i, (double)x[i]);
            code = DUET_CHECK;
        }
    return code;
}

static int repeat(struct job *j, const char *name, float *x) {
    int code = DUET_OK, made = 1;
    while (!code && made) {
        made = 0;
        for (int k = 0; k < CALLS && !code; k++) {
            if (strcmp(name, "all") && strcmp(name, calls[k].name)) continue;
            made = 1;
            code = calls[k].call(j);
            if (!code && j->work) code = duet_work_wait(j->work);
            duet_work_free(j->work);
            j->work = NULL;
            if (!code) code = check(j, calls[k].name, j->result, x);
            if (!code) code = check(j, calls[k].name, j->results, x);
        }
    }
    return code ? code : DUET_USAGE; /* there is no such call */
}

static int work(struct job *j, char **argv) {
    duet_device *device = NULL;
    float *x = NULL;
    int code = duet_device_open(&device, "auto", duet_group_local_rank(j->group), 64 << 20);
    int count = j->count, all = count * j->n;
    if (code) return code;
    x = malloc((size_t)all * sizeof *x);
    for (int i = 0; i < all; i++)
        x[i] = 1;
    code = duet_tensor_create(&j->one, device, DUET_F32, 1, &count, x);
    if (!code) code = duet_tensor_create(&j->many, device, DUET_F32, 1, &all, x);
    if (!code) code = duet_tensor_create(&j->result, device, DUET_F32, 1, &count, NULL);
    if (!code) code = duet_tensor_create(&j->results, device, DUET_F32, 1, &all, NULL);
    if (!code) code = repeat(j, argv[1], x);
    duet_tensor_free(j->one);
    duet_tensor_free(j->many);
    duet_tensor_free(j->result);
    duet_tensor_free(j->results);
    duet_devices_close(&device, 1);
    free(x);
    return code;
}

int main(int argc, char **argv) {
    struct job j = {0};
    if (argc < 4) return 2;
    j.count = atoi(argv[2]);
    j.begun = argc > 4;
    int code = duet_group_init(&j.group, atof(argv[3]));
    j.n = duet_group_size(j.group);
    j.rank = duet_group_rank(j.group);
    if (!code) code = work(&j, argv);
    if (code) fprintf(stderr, "helper_collectives: %s\n", duet_error());
    duet_group_destroy(&j.group);
    return duet_exit_status(code);
}
