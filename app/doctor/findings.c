/* Findings: see findings.h. */
#include "doctor/findings.h"

#include <string.h>
#include <sys/mman.h>

#include "base/text/text.h"

/* As tables and --json write it. */
static const char *const state_names[] = {"ok", "off", "not here"};

struct findings *findings_new(void) {
    void *memory = mmap(NULL, sizeof(struct findings), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

void findings_free(struct findings *findings) {
    if (findings) munmap(findings, sizeof *findings);
}

/* The row first, then the count (release): a reader of the count (acquire) sees complete rows. */
void finding_add(struct findings *findings, enum finding_state state, const char *check,
                 const char *measured, const char *bound) {
    int count = findings->count;
    if (count >= FINDINGS_MOST) return;
    if (count == FINDINGS_MOST - 1) {
        state = FINDING_OFF;
        check = "table", measured = "full: further findings are left out", bound = "";
    }
    struct finding *row = &findings->row[count];
    row->state = state;
    snprintf(row->check, sizeof row->check, "%s", check);
    snprintf(row->measured, sizeof row->measured, "%s", measured);
    snprintf(row->bound, sizeof row->bound, "%s", bound);
    __atomic_store_n(&findings->count, count + 1, __ATOMIC_RELEASE);
}

int findings_count(const struct findings *findings, enum finding_state state) {
    int n = 0, count = __atomic_load_n(&findings->count, __ATOMIC_ACQUIRE);
    for (int i = 0; i < count; i++)
        n += findings->row[i].state == state;
    return n;
}

/* ---- for people ---- */

enum { CHECK_WIDTH = 36, STATE_WIDTH = 8 };

void finding_print(FILE *file, const struct finding *f, int width, int details) {
    text_say(file, width, 0, CHECK_WIDTH + STATE_WIDTH + 4, "%-*s  %-*s  %s", CHECK_WIDTH, f->check,
             STATE_WIDTH, state_names[f->state], f->measured);
    if (*f->bound && (details || f->state != FINDING_OK))
        text_say(file, width, 4, 4, "bound: %s", f->bound);
}

/* ---- for programs ---- */

void findings_json(const struct findings *findings, struct json_writer *w, const char *key) {
    json_array(w, key);
    for (int i = 0; i < findings->count; i++) {
        const struct finding *f = &findings->row[i];
        json_object(w, NULL);
        json_string(w, "check", f->check);
        json_string(w, "state", state_names[f->state]);
        json_string(w, "measured", f->measured);
        json_string(w, "bound", f->bound);
        json_close(w);
    }
    json_close(w);
}
