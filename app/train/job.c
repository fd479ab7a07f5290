/* Runs jobs: see job.h. The launcher writes a memfd that every rank reads:
 *
 *     [struct run_config][if --model is a file: its path, a zero byte, its contents]
 *
 * The same program writes and reads it, so the struct is copied as bytes. Rank 0 writes the results
 * of the run to a second memfd:
 *
 *     [struct failures: outputs that could not be written][the record, trace/record_bytes.h]
 *
 * For --trace each rank appends its spans to a third memfd, as structs. */
#include "train/job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/advice.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/program_name.h"
#include "base/system_error.h"
#include "comm/comm.h"
#include "comm/launch.h"
#include "models/model_file.h"
#include "trace/record_bytes.h"
#include "train/estimate/retime.h"
#include "train/shared_data.h"
#include "train/spread.h"
#include "train/trainer.h"

/* The descriptors that a rank inherits, in the order of its arguments. */
enum { JOB_CONFIG, JOB_RECORD, JOB_SPANS, JOB_FILES };
/* After these come the data sets that the configuration names. */
enum { JOB_DATA_SETS = 2, JOB_FDS = JOB_FILES + JOB_DATA_SETS };

/* ---- memfds ---- */

static int make_memfd(const char *name, int *fd) {
    *fd = memfd_create(name, MFD_CLOEXEC);
    return *fd < 0 ? fail_system(errno, "job: memfd_create: %s", name) : OK;
}

static int write_all(int fd, const void *data, size_t bytes) {
    const char *p = data;
    for (ssize_t n; bytes; p += n, bytes -= (size_t)n)
        if ((n = write(fd, p, bytes)) <= 0)
            return fail_system(errno, "job: cannot write %zu bytes to a memory file", bytes);
    return OK;
}

/* Maps a whole file for reading; an empty one gives *bytes 0 and *data NULL. */
static int map_all(int fd, void **data, size_t *bytes) {
    struct stat about;
    if (fstat(fd, &about))
        return fail(ERR_FAILED,
                    "job: descriptor %d: no job was handed over: start it with duet train", fd);
    *bytes = (size_t)about.st_size;
    *data = *bytes ? mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    return *data == MAP_FAILED
               ? fail(ERR_MEMORY, "job: cannot map %zu bytes: free some memory", *bytes)
               : OK;
}

/* ---- the launcher's side ---- */

/* The file of the record begins with the outputs that could not be written. record: NULL if it is
 * not wanted. */
static int read_record(int fd, struct run_record *record, struct failures *unwritten) {
    void *data = NULL;
    size_t bytes;
    CHECK(map_all(fd, &data, &bytes));
    int code = bytes < sizeof *unwritten
                   ? fail(ERR_FAILED, "job: rank 0 has left no record: start it again")
                   : OK;
    if (!code) memcpy(unwritten, data, sizeof *unwritten);
    if (!code && record)
        code = record_bytes_read(record, (const char *)data + sizeof *unwritten,
                                 bytes - sizeof *unwritten);
    if (data) munmap(data, bytes);
    return code;
}

/* Reads the spans that the ranks appended; those of one rank are in order, but ranks are mixed. */
static int read_spans(int fd, struct run_record *record) {
    struct span_log *kept = &record->kept;
    void *data = NULL;
    size_t bytes;
    CHECK(map_all(fd, &data, &bytes));
    const struct span *spans = data;
    span_log_init(kept, 1);
    for (size_t i = 0; i < bytes / sizeof *spans; i++)
        span_add(kept, &spans[i]);
    if (data) munmap(data, bytes);
    if (bytes % sizeof *spans)
        return fail(ERR_FAILED,
                    "job: spans: %zu bytes: a span has %zu: a rank did not finish writing", bytes,
                    sizeof *spans);
    record->spans_lost += (int64_t)kept->dropped;
    return OK;
}

/* Adds to a run's code that it was stopped, and which files could not be written. */
static int end_run(struct job_result *result, int code, int stopped,
                   const struct run_record *record, struct failures *unwritten) {
    int done = record ? record->first_step + record->steps : 0;
    result->unwritten = !code && unwritten->code;
    result->stopped = !code && stopped;
    if (result->stopped && record)
        failures_add(unwritten,
                     fail(ERR_FAILED, "ended by signal %d (%s) after %d step%s", result->signal,
                          strsignal(result->signal), done, done == 1 ? "" : "s"));
    return code ? code : failures_end(unwritten);
}

/* In this process; record_new as in a rank that is started for the job. */
static int run_spread(const struct run_config *config, struct run_record *record,
                      struct job_result *result) {
    struct failures unwritten = {0};
    int code = spread_run(config, record, &unwritten, &result->signal);
    code = end_run(result, code, result->signal, record, &unwritten);
    result->exit_status = result->stopped ? 128 + result->signal : error_exit_status(code);
    return code;
}

/* The descriptors that the ranks inherit. */
struct handover {
    int fd[JOB_FDS], count;
};

/* Makes the memory files, and writes the configuration. */
static int hand_over(struct handover *h, const struct run_config *config) {
    const struct model_file *file = model_file_of(config->model.options.own);
    for (int i = 0; i < JOB_DATA_SETS; i++)
        if (config->data.fd[i]) h->fd[h->count++] = config->data.fd[i];
    CHECK(make_memfd("duet-config", &h->fd[JOB_CONFIG]));
    CHECK(make_memfd("duet-record", &h->fd[JOB_RECORD]));
    CHECK(make_memfd("duet-spans", &h->fd[JOB_SPANS]));
    if (fcntl(h->fd[JOB_SPANS], F_SETFL, O_APPEND)) return fail_system(errno, "job: spans: fcntl");
    CHECK(write_all(h->fd[JOB_CONFIG], config, sizeof *config));
    if (!file) return OK;
    CHECK(write_all(h->fd[JOB_CONFIG], file->path, strlen(file->path) + 1));
    return write_all(h->fd[JOB_CONFIG], file->text, file->bytes);
}

static int launch_job(const struct handover *h, const struct run_config *config,
                      struct launch_result *launched) {
    char words[JOB_FILES][16], title[32];
    for (int i = 0; i < JOB_FILES; i++)
        snprintf(words[i], sizeof words[i], "%d", h->fd[i]);
    /* the last word is for users of ps */
    snprintf(title, sizeof title, "%s:%.20s", mode_name(config->mode), config->model.name);
    char *argv[] = {(char *)program_name(),
                    "job",
                    words[JOB_CONFIG],
                    words[JOB_RECORD],
                    words[JOB_SPANS],
                    title,
                    NULL};
    const struct launch launch = {.world_size = mode_has_ranks(config->mode) ? config->devices : 1,
                                  .argv = argv,
                                  .pass_fds = h->fd,
                                  .pass_count = h->count,
                                  .stoppable = config->stoppable};
    return launch_ranks(&launch, launched);
}

/* Runs the job in its own processes. */
static int run_launched(const struct run_config *config, struct run_record *record,
                        struct job_result *result) {
    struct handover h = {.fd = {-1, -1, -1}, .count = JOB_FILES};
    struct launch_result launched = {0};
    struct failures unwritten = {0};
    int code = hand_over(&h, config);
    if (!code) {
        code = launch_job(&h, config, &launched);
        result->exit_status = launched.exit_status;
        result->signal = launched.signal;
        if (launched.stopped) code = OK;
        if (!code) code = read_record(h.fd[JOB_RECORD], record, &unwritten);
        if (!code && record) code = read_spans(h.fd[JOB_SPANS], record);
        if (!code && record && *config->clock.gpu && !config->dump_grads)
            code = retime_record(config, record);
        code = end_run(result, code, launched.stopped, record, &unwritten);
        if (code && !result->exit_status) result->exit_status = error_exit_status(code);
    }
    for (int i = 0; i < JOB_FILES; i++)
        if (h.fd[i] >= 0) close(h.fd[i]);
    return code;
}

int job_run(const struct run_config *config, struct run_record *record, struct job_result *result) {
    struct run_config stamped = *config;
    stamped.started_ns = now_ns();
    memset(result, 0, sizeof *result);
    result->exit_status = 1;
    int code = shared_data_open(&stamped);
    if (!code)
        code = (config->spread && mode_has_ranks(config->mode) ? run_spread : run_launched)(
            &stamped, record, result);
    if (code) error_with_options();
    for (int i = 0; i < JOB_DATA_SETS; i++)
        if (config->data.fd[i]) stamped.data.fd[i] = 0; /* the caller keeps its descriptors */
    shared_data_close(&stamped);
    return code;
}

int job_run_titled(const char *title, const struct run_config *config, struct run_record *record,
                   struct job_result *result) {
    int code = job_run(config, record, result);
    return code ? fail(code, "%s: %s", title, error_message()) : OK;
}

int job_try_first(const struct run_config *config, struct job_result *result) {
    struct run_config one = *config;
    int nccl = !strcmp(config->ddp.allreduce, "nccl");
    if (config->spread || (!nccl && !*config->fsdp.units)) return OK;
    one.mode = nccl ? MODE_DDP : MODE_FSDP;
    one.steps = one.quiet = 1;
    one.evaluate = 0;
    run_config_without_files(&one);
    int code = job_run_titled(mode_title(one.mode), &one, NULL, result);
    return nccl || code == ERR_USAGE ? code : OK;
}

/* ---- the rank's side ---- */

/* Closes fd. */
static int write_record(int fd, const struct run_record *record, const struct failures *unwritten) {
    FILE *file = fdopen(fd, "w");
    if (!file) return fail_system(errno, "run record: descriptor %d", fd);
    fwrite(unwritten, sizeof *unwritten, 1, file);
    record_bytes_write(record, file);
    int bad = ferror(file);
    if (fclose(file) || bad)
        return fail(ERR_FAILED, "run record: cannot be written: free some memory");
    return OK;
}

/* The model of the file whose path and text are at `at`; nothing where there are none. */
static int read_file_model(struct model_file **file, const char *at, size_t bytes) {
    size_t path = strnlen(at, bytes) + 1;
    return path < bytes ? model_file_parse(file, at, at + path, bytes - path) : OK;
}

/* Runs this process's part of the job. *told: the launcher has been told of the failure and prints
 * it, once for all ranks. */
static int run_rank(int config_fd, int record_fd, int spans_fd, const struct duet_model *own,
                    int *told, int *in_use) {
    void *data = NULL;
    size_t bytes;
    struct run_config config;
    struct run_record *record = NULL;
    struct comm *comm = NULL;
    struct model_file *file = NULL;
    struct failures unwritten = {0};
    CHECK(map_all(config_fd, &data, &bytes));
    if (bytes < sizeof config)
        return fail(ERR_USAGE, "job: no configuration: start it with duet train");
    memcpy(&config, data, sizeof config);
    /* Ctrl-C reaches both the launcher and the ranks, and the launcher then asks the ranks to stop.
     * If the terminal closes, the launcher ends the job, but a rank that is putting a file in place
     * finishes that. */
    if (config.stoppable) signal(SIGINT, SIG_IGN), signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    int code = read_file_model(&file, (char *)data + sizeof config, bytes - sizeof config);
    config.model.options.own = file ? file->model : own; /* a launcher's pointer: invalid here */
    if (code) goto done;
    struct comm_options options = {.timeout_s = config.timeout};
    code = comm_open(&comm, &options);
    *told = comm_open_was_reported(code);
    if (code) goto done;
    CHECK_GOTO(record_new(&record), code, done);
    CHECK_GOTO(trainer_run(&config, comm, record, &unwritten, in_use), code, done);
    if (comm_rank(comm) == 0) CHECK_GOTO(write_record(record_fd, record, &unwritten), code, done);
    const struct span_log *kept = &record->kept;
    CHECK_GOTO(write_all(spans_fd, kept->spans, kept->count * sizeof *kept->spans), code, done);
done:
    if (comm) comm_abort(comm, code, error_message());
    if (!*in_use) comm_close(comm);
    if (!*in_use) record_delete(record);
    if (!*in_use) model_file_free(file);
    munmap(data, bytes);
    return code;
}

int job_main(int argc, char **argv, const struct duet_model *own) {
    int told = 0, in_use = 0;
    int code = argc < JOB_FILES ? fail(ERR_USAGE, "job: duet starts it itself: use duet train")
                                : run_rank(atoi(argv[JOB_CONFIG]), atoi(argv[JOB_RECORD]),
                                           atoi(argv[JOB_SPANS]), own, &told, &in_use);
    if (code && !told) fprintf(stderr, "%s: %s\n", program_name(), error_with_options());
    if (!in_use) return error_exit_status(code);
    /* Flushes output but skips the exit handlers of libraries, in which a driver may wait for its
     * GPU without a deadline. */
    fflush(NULL);
    _exit(error_exit_status(code));
}
