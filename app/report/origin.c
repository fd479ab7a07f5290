/* Finds the origin of results: see origin.h. A fact that cannot be found is left empty and does not
 * end the run. */
#include "report/origin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/error.h"

#if defined __clang__
#define COMPILER "clang " __clang_version__
#else
#define COMPILER "gcc " __VERSION__
#endif

/* The command line of this process, as the kernel keeps it: each word ends with a zero byte. */
static int find_words(struct origin *o) {
    char *line = NULL;
    size_t capacity = 0;
    int code = OK;
    FILE *file = fopen("/proc/self/cmdline", "r");
    if (!file) return OK;
    while (!code && getdelim(&line, &capacity, 0, file) > 0) {
        char **words = realloc(o->words, ((size_t)o->word_count + 1) * sizeof *words);
        if (words) o->words = words;
        char *word = words ? strdup(line) : NULL;
        if (word)
            o->words[o->word_count++] = word;
        else
            code = fail(ERR_MEMORY, "command line: out of host memory");
    }
    free(line);
    fclose(file);
    return code;
}

static void find_cpu(struct origin *o) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file && !*o->cpu && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(o->cpu, sizeof o->cpu, "%s", colon + 1 + strspn(colon + 1, " "));
    }
    if (file) fclose(file);
}

static void find_host(struct origin *o) {
    struct utsname system;
    if (gethostname(o->host, sizeof o->host - 1)) *o->host = 0;
    if (!uname(&system))
        snprintf(o->system, sizeof o->system, "%.50s %.50s %.50s", system.sysname, system.release,
                 system.machine);
    find_cpu(o);
    o->cores = usable_cores();
    o->memory = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
}

int origin_find(struct origin *o, const char *cuda_build) {
    time_t now = time(NULL);
    struct tm utc;
    *o = (struct origin){.word_count = 0};
    strftime(o->date, sizeof o->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    snprintf(o->duet, sizeof o->duet, "%s", DUET_VERSION);
    snprintf(o->compiler, sizeof o->compiler, "%s", COMPILER);
    find_host(o);
    snprintf(o->cuda, sizeof o->cuda, "%s", cuda_build);
    return find_words(o);
}

void origin_free(struct origin *o) {
    for (int i = 0; i < o->word_count; i++)
        free(o->words[i]);
    free(o->words);
    o->words = NULL, o->word_count = 0;
}

void origin_write(const struct origin *o, struct json_writer *w, const char *command) {
    json_integer(w, "schema", JSON_SCHEMA);
    json_string(w, "command", command);
    json_array(w, "command_line");
    for (int i = 0; i < o->word_count; i++)
        json_string(w, NULL, o->words[i]);
    json_close(w);
    json_string(w, "date", o->date);
    json_object(w, "host");
    json_string_or_null(w, "name", o->host);
    json_string_or_null(w, "system", o->system);
    json_string_or_null(w, "cpu", o->cpu);
    json_integer(w, "cores", o->cores);
    json_integer(w, "memory", o->memory);
    json_close(w);
    json_object(w, "versions");
    json_string(w, "duet", o->duet);
    json_string(w, "compiler", o->compiler);
    json_string(w, "cuda", o->cuda);
    json_close(w);
}
