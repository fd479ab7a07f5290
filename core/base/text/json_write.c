/* The JSON writer builds no tree. Each call prints its piece at once, and a short stack records
 * which levels are open. */
#include "base/text/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/text/number.h"

void json_start(struct json_writer *w, FILE *file) {
    memset(w, 0, sizeof *w);
    w->file = file;
}

static void write_quoted(FILE *file, const char *text) {
    static const char named[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    const unsigned char *p = (const unsigned char *)text, *end = p + strlen(text);
    fputc('"', file);
    while (p < end) {
        const char *at = strchr(named, *p);
        int n = utf8_length(p, (size_t)(end - p));
        if (at)
            fprintf(file, "\\%c", letter[at - named]);
        else if (n == 0)
            fputs("\\ufffd", file);
        else if (*p < 0x20 || *p == 0x7f)
            fprintf(file, "\\u%04x", *p);
        else
            fwrite(p, 1, (size_t)n, file);
        p += n ? n : 1;
    }
    fputc('"', file);
}

/* Prints what is before any value: a comma if one is needed, and the key. */
static void before_value(struct json_writer *w, const char *key) {
    if (w->depth > 0 && w->depth <= JSON_DEPTH) {
        if (w->has_item[w->depth - 1]) fputs(", ", w->file);
        w->has_item[w->depth - 1] = 1;
        if ((key != NULL) != (w->closer[w->depth - 1] == '}')) w->misused = 1;
    }
    if (!key) return;
    write_quoted(w->file, key);
    fputs(": ", w->file);
}

static void open_level(struct json_writer *w, const char *key, char opener, char closer) {
    before_value(w, key);
    fputc(opener, w->file);
    if (w->depth < JSON_DEPTH) {
        w->closer[w->depth] = closer;
        w->has_item[w->depth] = 0;
    } else {
        w->misused = 1;
    }
    w->depth++;
}

void json_object(struct json_writer *w, const char *key) {
    open_level(w, key, '{', '}');
}
void json_array(struct json_writer *w, const char *key) {
    open_level(w, key, '[', ']');
}

void json_close(struct json_writer *w) {
    if (w->depth == 0) {
        w->misused = 1;
        return;
    }
    w->depth--;
    if (w->depth < JSON_DEPTH) fputc(w->closer[w->depth], w->file);
}

void json_string(struct json_writer *w, const char *key, const char *text) {
    before_value(w, key);
    write_quoted(w->file, text);
}

void json_number(struct json_writer *w, const char *key, double value) {
    locale_t before = numbers_of_c();
    before_value(w, key);
    if (isfinite(value))
        fprintf(w->file, "%.17g", value);
    else
        fputs("null", w->file);
    numbers_end(before);
}

void json_integer(struct json_writer *w, const char *key, int64_t value) {
    before_value(w, key);
    fprintf(w->file, "%" PRId64, value);
}

/* Above this a millionth is lost in a double. */
static const uint64_t MOST_THOUSANDTHS = UINT64_C(1) << 43;

void json_thousandths(struct json_writer *w, const char *key, int64_t value) {
    uint64_t size = value < 0 ? -(uint64_t)value : (uint64_t)value;
    /* The double nearest to 1.001, times 1000, is 1000.999...; adding a millionth makes the integer
     * part right again. */
    int short_of_it = size < MOST_THOUSANDTHS && (uint64_t)((double)size / 1000 * 1000) != size;
    before_value(w, key);
    fprintf(w->file, "%s%" PRIu64 ".%03" PRIu64 "%s", value < 0 ? "-" : "", size / 1000,
            size % 1000, short_of_it ? "001" : "");
}

void json_natural(struct json_writer *w, const char *key, uint64_t value) {
    before_value(w, key);
    fprintf(w->file, "%" PRIu64, value);
}

void json_boolean(struct json_writer *w, const char *key, int value) {
    before_value(w, key);
    fputs(value ? "true" : "false", w->file);
}

void json_null(struct json_writer *w, const char *key) {
    before_value(w, key);
    fputs("null", w->file);
}

void json_string_or_null(struct json_writer *w, const char *key, const char *text) {
    if (*text)
        json_string(w, key, text);
    else
        json_null(w, key);
}

void json_index_or_null(struct json_writer *w, const char *key, int64_t index) {
    if (index < 0)
        json_null(w, key);
    else
        json_integer(w, key, index);
}

void json_slice(struct json_writer *w, int process, int track, const char *name,
                const char *category, int64_t start_ns, int64_t end_ns) {
    fputc('\n', w->file);
    json_object(w, NULL);
    json_string(w, "ph", "X");
    json_integer(w, "pid", process);
    json_integer(w, "tid", track);
    json_string(w, "name", name);
    if (category) json_string(w, "cat", category);
    json_thousandths(w, "ts", start_ns); /* in microseconds */
    json_thousandths(w, "dur", end_ns - start_ns);
    json_object(w, "args");
}

int json_finish(struct json_writer *w, const char *name) {
    if (w->depth || w->misused)
        return fail(ERR_FAILED, "%s: JSON not well formed: %d levels open: close each once", name,
                    w->depth);
    fputc('\n', w->file);
    errno = 0;
    if (fflush(w->file) || ferror(w->file))
        return fail_errno(ERR_FAILED, errno ? errno : EIO, "cannot write: %s", name);
    return OK;
}
