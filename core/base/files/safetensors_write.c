/* Writes safetensors. The header is first made in memory, because its length precedes it. */
#include "base/files/safetensors.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/text/json.h"

static const char *item_dtype(const struct safetensors_item *item) {
    return item->dtype ? item->dtype : "F32";
}

static int is_wide(const struct safetensors_item *item) {
    return !strcmp(item_dtype(item), "I64");
}

static uint64_t item_bytes(const struct safetensors_item *item) {
    uint64_t bytes = is_wide(item) ? sizeof(int64_t) : sizeof(float);
    for (int i = 0; i < item->dims; i++)
        bytes *= (uint64_t)item->shape[i];
    return bytes;
}

static void describe_item(struct json_writer *w, const struct safetensors_item *item,
                          uint64_t *offset) {
    char prefixed[256];
    snprintf(prefixed, sizeof prefixed, "%s%s", item->prefix ? item->prefix : "", item->name);
    json_object(w, item->prefix ? prefixed : item->name);
    json_string(w, "dtype", item_dtype(item));
    json_array(w, "shape");
    for (int k = 0; k < item->dims; k++)
        json_integer(w, NULL, item->shape[k]);
    json_close(w);
    json_array(w, "data_offsets");
    json_integer(w, NULL, (int64_t)*offset);
    json_integer(w, NULL, (int64_t)(*offset += item_bytes(item)));
    json_close(w);
    json_close(w);
}

static void describe_items(struct json_writer *w, const struct safetensors_item *items, int count,
                           const struct safetensors_pair *metadata, int pairs) {
    uint64_t offset = 0;
    json_object(w, NULL);
    if (pairs) {
        json_object(w, "__metadata__");
        for (int i = 0; i < pairs; i++)
            json_string(w, metadata[i].key, metadata[i].value);
        json_close(w);
    }
    for (int wide = 1; wide >= 0; wide--)
        for (int i = 0; i < count; i++)
            if (is_wide(&items[i]) == wide) describe_item(w, &items[i], &offset);
    json_close(w);
}

/* Makes the text of the header, padded with spaces so that the data begins at a multiple of 8. The
 * caller frees *text, also after an error. */
static int make_header(const char *name, const struct safetensors_item *items, int count,
                       const struct safetensors_pair *metadata, int pairs, char **text,
                       size_t *bytes) {
    struct json_writer w;
    FILE *file = open_memstream(text, bytes);
    if (!file) return fail(ERR_MEMORY, "cannot write: %s: no memory: free some memory", name);
    json_start(&w, file);
    describe_items(&w, items, count, metadata, pairs);
    int code = json_finish(&w, name);
    size_t end = *bytes; /* json_finish has flushed, so *bytes is the length so far */
    for (size_t n = end; !code && n % 8; n++)
        fputc(' ', file);
    if (fclose(file))
        CHECK_KEEP(fail(ERR_MEMORY, "cannot write: %s: no memory: free some memory", name), code);
    if (!code) (*text)[end - 1] = ' '; /* replaces the newline that json_finish wrote */
    /* The reader checks that the header is valid; it also finds duplicate names. */
    struct json *parsed = NULL;
    if (!code) code = json_parse(name, *text, *bytes, &parsed);
    json_free(parsed);
    return code;
}

int safetensors_write(struct atomic_file *file, const struct safetensors_item *items, int count,
                      const struct safetensors_pair *metadata, int pairs) {
    char *text = NULL;
    size_t bytes = 0;
    int code = make_header(file->name, items, count, metadata, pairs, &text, &bytes);
    if (!code) {
        uint64_t length = bytes;
        fwrite(&length, 8, 1, file->file);
        fwrite(text, 1, bytes, file->file);
        for (int wide = 1; wide >= 0; wide--)
            for (int i = 0; i < count; i++)
                if (is_wide(&items[i]) == wide)
                    fwrite(items[i].data, 1, (size_t)item_bytes(&items[i]), file->file);
    }
    free(text);
    return code;
}
