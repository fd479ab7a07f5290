/* Reads the table of hardware and files like it: see hardware.h. */
#include "clock/hardware.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embed.h"
#include "base/error.h"
#include "base/text/nearest.h"
#include "base/text/parse.h"

enum { LINE_BYTES = 400, MOST_WORDS = 48 };

EMBED(hardware_text, "app/clock/hardware.txt");

/* A line that is read. */
struct line {
    const char *file;
    int number, words;
    char text[LINE_BYTES], *word[MOST_WORDS];
};

enum { WHERE = 320 };

/* What an error begins with: the option, the file and the line. */
static const char *where(const struct line *l, const char *key, char text[WHERE]) {
    snprintf(text, WHERE, "--machine: %.200s:%d%s%s", l->file, l->number, *key ? ": " : "", key);
    return text;
}

static int refuse(const struct line *l, const char *word, const char *why) {
    char text[WHERE];
    return fail(ERR_USAGE, "%s: '%.60s': %s", where(l, "", text), word, why);
}

static void cut(struct line *l) {
    l->words = 0;
    l->text[strcspn(l->text, "#\r\n")] = 0;
    for (char *save, *w = strtok_r(l->text, " \t", &save); w && l->words < MOST_WORDS;
         w = strtok_r(NULL, " \t", &save))
        l->word[l->words++] = w;
}

/* ---- entries with keys ---- */

struct key {
    const char *name;
    double *number; /* sets a number, or */
    int *whole;
    char *text; /* a name instead */
    double lowest, highest;
};

static int read_number(const struct line *l, const struct key *k, const char *text) {
    char what[WHERE];
    double value = 0;
    CHECK(parse_number(where(l, k->name, what), text, k->lowest, k->highest, &value));
    if (k->whole && value != floor(value)) return refuse(l, text, "give an integer");
    if (k->whole) *k->whole = (int)value;
    if (k->number) *k->number = value;
    return OK;
}

static int read_keys(const struct line *l, const struct key *keys, int count, char *name) {
    if (l->words < 2 || strlen(l->word[1]) >= HARDWARE_NAME)
        return refuse(l, l->words < 2 ? l->word[0] : l->word[1],
                      "give a name of 1 to 23 characters");
    snprintf(name, HARDWARE_NAME, "%s", l->word[1]);
    for (int w = 2; w < l->words; w += 2) {
        const struct key *k = NULL;
        for (int i = 0; i < count; i++)
            if (!strcmp(keys[i].name, l->word[w])) k = &keys[i];
        if (!k) return refuse(l, l->word[w], "no such key: docs/clock.md lists them");
        if (w + 1 == l->words) return refuse(l, l->word[w], "its value is missing");
        if (!k->text)
            CHECK(read_number(l, k, l->word[w + 1]));
        else if (strlen(l->word[w + 1]) >= HARDWARE_NAME)
            return refuse(l, l->word[w + 1], "a name has at most 23 characters");
        else
            snprintf(k->text, HARDWARE_NAME, "%s", l->word[w + 1]);
    }
    return OK;
}

static const double LEAST = 1e-6, MOST = 1e6;

/* The slot for an entry: that of an entry with the same name, which it replaces, or a new one. */
static int add_or_replace(const struct line *l, void *list, size_t each, int *count, int most,
                          const void *entry, void **out) {
    int i = 0;
    while (i < *count && strcmp((char *)list + (size_t)i * each, entry))
        i++;
    if (i == most) return refuse(l, l->word[0], "too many");
    if (i == *count) (*count)++;
    *out = (char *)list + (size_t)i * each;
    memcpy(*out, entry, each);
    return OK;
}

static int read_gpu(struct hardware *h, const struct line *l) {
    struct gpu_spec g = {.reached = 0.76, .pcie = 4};
    const struct key keys[] = {
        {"fp32", &g.fp32, NULL, NULL, LEAST, MOST}, {"tensor", &g.tensor, NULL, NULL, 0, MOST},
        {"half", &g.half, NULL, NULL, 0, MOST},     {"gbs", &g.gbs, NULL, NULL, LEAST, MOST},
        {"gib", &g.gib, NULL, NULL, LEAST, MOST},   {"reached", &g.reached, NULL, NULL, 0.01, 1},
        {"pcie", NULL, &g.pcie, NULL, 3, 5}};
    void *unused;
    CHECK(read_keys(l, keys, sizeof keys / sizeof *keys, g.name));
    if (!g.half) g.half = 2 * g.tensor;
    if (!g.fp32 || !g.gbs || !g.gib) return refuse(l, g.name, "a GPU needs fp32, gbs and gib");
    return add_or_replace(l, h->gpu, sizeof g, &h->gpus, HARDWARE_GPUS, &g, &unused);
}

static int read_link(struct hardware *h, const struct line *l) {
    struct link_spec s = {.us = 0};
    const struct key keys[] = {{"gbs", &s.gbs, NULL, NULL, LEAST, MOST},
                               {"us", &s.us, NULL, NULL, 0, MOST}};
    void *unused;
    CHECK(read_keys(l, keys, 2, s.name));
    if (!s.gbs) return refuse(l, s.name, "a link needs gbs");
    return add_or_replace(l, h->link, sizeof s, &h->links, HARDWARE_LINKS, &s, &unused);
}

/* Every entry begins with its name. */
static int find(const char *what, const char *name, const void *list, size_t each, int count,
                const void **out) {
    const char *words[HARDWARE_MACHINES]; /* the longest list */
    for (int i = 0; i < count; i++) {
        words[i] = (const char *)list + (size_t)i * each;
        if (!strcmp(words[i], name)) return *out = words[i], OK;
    }
    return fail(unknown_value(what, name, words, count), "%s (duet devices --gpus lists them)",
                error_message());
}

static int find_link(const struct hardware *h, const char *what, const char *name,
                     const struct link_spec **out) {
    return find(what, name, h->link, sizeof *h->link, h->links, (const void **)out);
}

/* like NAME: everything that is not given is copied from that machine, including links. Calibration
 * and stated error hold only if the new machine is just another name for it. */
static int copy_like(const struct hardware *h, const struct line *l, struct machine *m) {
    const struct machine *from = NULL;
    char what[WHERE];
    for (int w = 2; w + 1 < l->words; w += 2)
        if (!strcmp(l->word[w], "like")) {
            CHECK(hardware_find_machine(h, where(l, "like", what), l->word[w + 1], &from));
            *m = *from;
            m->is_like = l->words == 4;
            if (!m->is_like) m->fitted = 0, m->error = 0;
        }
    return OK;
}

static int read_machine(struct hardware *h, const struct line *l, struct machine **out) {
    struct machine m = {.cards = 1,
                        .exposed = 0.1,
                        .links = 1,
                        .pageable_gbs = 6,
                        .forward_us = 20,
                        .backward_us = 45,
                        .replicate_us = 20,
                        .hook_us = 10,
                        .scale = 1};
    char network[HARDWARE_NAME] = "", like[HARDWARE_NAME] = "", what[WHERE];
    CHECK(copy_like(h, l, &m));
    const struct key keys[] = {{"gpus", NULL, &m.gpus, NULL, 1, MAX_DEVICES},
                               {"gpu", NULL, NULL, m.gpu, 0, 0},
                               {"like", NULL, NULL, like, 0, 0},
                               {"network", NULL, NULL, network, 0, 0},
                               {"cards", &m.cards, NULL, NULL, 1, 64},
                               {"sum", &m.sum_gbs, NULL, NULL, LEAST, MOST},
                               {"exposed", &m.exposed, NULL, NULL, 0, 1},
                               {"links", &m.links, NULL, NULL, 0.01, 100},
                               {"pageable", &m.pageable_gbs, NULL, NULL, LEAST, MOST},
                               {"forward", &m.forward_us, NULL, NULL, 0, MOST},
                               {"backward", &m.backward_us, NULL, NULL, 0, MOST},
                               {"replicate", &m.replicate_us, NULL, NULL, 0, MOST},
                               {"hook", &m.hook_us, NULL, NULL, 0, MOST},
                               {"scale", &m.scale, NULL, NULL, 0.01, 100},
                               {"fitted", NULL, &m.fitted, NULL, 0, 1},
                               {"error", &m.error, NULL, NULL, 0, 100}};
    const struct link_spec *link = NULL;
    const struct gpu_spec *gpu = NULL;
    CHECK(read_keys(l, keys, sizeof keys / sizeof *keys, m.name));
    if (!m.gpus) return refuse(l, m.name, "a machine needs gpus N");
    if (*network) {
        CHECK(find_link(h, where(l, "network", what), network, &link));
        m.network = *link;
    }
    if (*m.gpu) CHECK(hardware_find_gpu(h, where(l, "gpu", what), m.gpu, &gpu));
    h->nodes = 0;
    return add_or_replace(l, h->machine, sizeof m, &h->machines, HARDWARE_MACHINES, &m,
                          (void **)out);
}

/* ---- joins ---- */

/* "gpu0", "gpu0-3", "host", or a name, which makes a switch. */
static int read_nodes(struct hardware *h, const struct machine *m, const struct line *l,
                      const char *word, int *first, int *last) {
    int one = 0, range = 0, n = sscanf(word, "gpu%d%n-%d%n", first, &one, last, &range);
    if (n >= 1) { /* the whole word must match: "gpu0x" is not a GPU */
        if (n == 1) *last = *first;
        int all = (size_t)(n == 1 ? one : range) == strlen(word);
        if (all && *first >= 0 && *first <= *last && *last < m->gpus) return OK;
        return refuse(l, word, "the machine has no such GPU");
    }
    if (!strcmp(word, "host")) return *first = *last = NET_HOST, OK;
    for (int i = 0; i < h->nodes; i++)
        if (!strcmp(h->node[i], word)) return *first = *last = NET_HOST + 1 + i, OK;
    if (NET_HOST + 1 + h->nodes == NET_NODES || strlen(word) >= HARDWARE_NAME)
        return refuse(l, word, "a machine has at most 31 switches, with names of 23 characters");
    snprintf(h->node[h->nodes], HARDWARE_NAME, "%s", word);
    *first = *last = NET_HOST + 1 + h->nodes++;
    return OK;
}

static int read_join(struct hardware *h, const struct line *l, struct machine *m) {
    int a[2], b[2];
    char what[WHERE];
    const struct link_spec *link = NULL;
    if (!m) return refuse(l, l->word[0], "it belongs to no machine: put it below one");
    if (l->words != 4)
        return refuse(l, l->word[0], "give two ends and a link: join gpu0 gpu1 LINK");
    CHECK(read_nodes(h, m, l, l->word[1], &a[0], &a[1]));
    CHECK(read_nodes(h, m, l, l->word[2], &b[0], &b[1]));
    CHECK(find_link(h, where(l, "", what), l->word[3], &link));
    for (int i = a[0]; i <= a[1]; i++)
        for (int j = b[0]; j <= b[1]; j++) {
            if (i == j) return refuse(l, l->word[2], "a link joins two different ends");
            if (m->net.links == NET_LINKS) return refuse(l, l->word[0], "too many links");
            if (m->is_like) m->fitted = 0, m->error = 0;
            struct net_link *to = &m->net.link[m->net.links++];
            *to = (struct net_link){.a = i, .b = j, .gbs = link->gbs, .us = link->us};
        }
    return OK;
}

/* ---- lines ---- */

static int read_line(struct hardware *h, struct line *l, struct machine **machine) {
    cut(l);
    if (!l->words) return OK;
    if (!strcmp(l->word[0], "gpu")) return read_gpu(h, l);
    if (!strcmp(l->word[0], "link")) return read_link(h, l);
    if (!strcmp(l->word[0], "machine")) return read_machine(h, l, machine);
    if (!strcmp(l->word[0], "join")) return read_join(h, l, *machine);
    return refuse(l, l->word[0], "a line begins with gpu, link, machine or join");
}

/* Every GPU reaches every other, and the host. */
static int check_machine(const struct machine *m) {
    struct net_way way;
    for (int g = 0; g < m->gpus; g++)
        for (int to = -1; to < m->gpus; to++)
            if (to != g && !net_way(&m->net, g, to, &way))
                return fail(ERR_USAGE,
                            "--machine: %s: gpu%d does not reach every other GPU and the host "
                            "over at most 8 links: join it, or all to a switch",
                            m->name, g);
    return OK;
}

static int read_lines(struct hardware *h, const char *name, FILE *file) {
    struct line l = {.file = name};
    struct machine *machine = NULL;
    int code = OK;
    if (!file)
        return fail(ERR_USAGE,
                    "--machine: %.300s: cannot be read: give a name that duet "
                    "devices --gpus lists, or a file",
                    name);
    while (!code && fgets(l.text, sizeof l.text, file)) {
        l.number++;
        if (!strchr(l.text, '\n') && strlen(l.text) + 1 == sizeof l.text)
            code = refuse(&l, "line", "it is too long");
        else
            code = read_line(h, &l, &machine);
    }
    fclose(file);
    h->last = machine;
    return code;
}

int hardware_open(struct hardware **out, const char *file) {
    struct hardware *h = *out = calloc(1, sizeof *h);
    if (!h) return fail(ERR_MEMORY, "table of hardware: out of host memory");
    FILE *table = fmemopen((char *)hardware_text, strlen(hardware_text), "r");
    int code = read_lines(h, "the table", table);
    h->last = NULL;
    if (!code && file) code = read_lines(h, file, fopen(file, "r"));
    for (int i = 0; !code && i < h->machines; i++)
        code = check_machine(&h->machine[i]);
    if (!code) return OK;
    hardware_free(h);
    *out = NULL;
    return code;
}

void hardware_free(struct hardware *h) {
    free(h);
}

int hardware_find_gpu(const struct hardware *h, const char *what, const char *name,
                      const struct gpu_spec **out) {
    return find(what, name, h->gpu, sizeof *h->gpu, h->gpus, (const void **)out);
}
int hardware_find_machine(const struct hardware *h, const char *what, const char *name,
                          const struct machine **out) {
    return find(what, name, h->machine, sizeof *h->machine, h->machines, (const void **)out);
}
