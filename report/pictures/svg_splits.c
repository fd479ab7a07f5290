/* Figure 13.5.2 of "Dive into Deep Learning" for the model of the runs: the original problem on one
 * device, and three ways to split it over several: by layers, inside layers, and by data, which is
 * how the runs themselves did it. Samples enter at the bottom. A colour is a device. */
#include <string.h>

#include "base/error.h"
#include "report/pictures/draw.h"
#include "report/text.h"

enum { MOST_ROWS = 6, MOST_SPLIT = 4, PANELS = 4 };

struct splits {
    const struct run_record *run;
    int devices, rows;
    char row[MOST_ROWS][32];  /* names of layers, the first of each row */
    double x, width;          /* of the panel that is drawn */
    double top, each, height; /* of rows: y of the last layer, the distance, and that of a box */
};

/* ---- layers ---- */

/* The layer of a parameter: "fc1" of "fc1.weight", "1" of "W1". Returns the length; *from is where
 * it begins. */
static size_t layer_of(const char *name, const char **from) {
    const char *dot = strrchr(name, '.');
    *from = name;
    if (dot) return (size_t)(dot - name);
    size_t letters = strcspn(name, "0123456789");
    if (name[letters]) *from = name + letters;
    return strlen(*from);
}

/* Parameters of a layer follow each other. */
static int begins_layer(const struct run_record *r, int i) {
    const char *name, *before;
    size_t length = layer_of(r->names[i], &name);
    return !i || layer_of(r->names[i - 1], &before) != length || memcmp(name, before, length);
}

static int count_layers(const struct run_record *r) {
    int layers = 0;
    for (int i = 0; r->names && i < r->parameters; i++)
        layers += begins_layer(r, i);
    return layers;
}

/* Layers beyond the rows share one, which is named by the part of the model that it begins with. */
static void name_rows(struct splits *s) {
    int layers = count_layers(s->run), layer = -1;
    s->rows = layers < MOST_ROWS ? layers : MOST_ROWS;
    for (int i = 0; i < s->run->parameters; i++) {
        if (!begins_layer(s->run, i)) continue;
        int row = ++layer * s->rows / layers;
        if (*s->row[row]) continue;
        const char *name;
        int length = (int)layer_of(s->run->names[i], &name);
        if (layers > s->rows && memchr(name, '.', (size_t)length)) length = (int)strcspn(name, ".");
        int is_number = strspn(name, "0123456789") == (size_t)length;
        snprintf(s->row[row], sizeof s->row[row], "%s%.*s%s", is_number ? "layer " : "",
                 length < 20 ? length : 20, name, layers > s->rows ? " ..." : "");
    }
}

int has_splits(const struct page *page) {
    const struct run_record *r = first_run(page);
    return r && most_devices(page) > 1 && count_layers(r) > 1;
}

/* ---- panels ---- */

/* The box of a row, or of its part `part` of `parts`. Row 0 is at the bottom. */
static void box(struct picture *p, const struct splits *s, int row, int part, int parts,
                int device) {
    double width = (s->width - (parts - 1) * 6) / parts, x = s->x + part * (width + 6);
    double y = s->top + (s->rows - 1 - row) * s->each;
    enum shade shade = shade_of_rank(device);
    picture_box(p, x, y, width, s->height, shade, NULL);
    picture_label(p, x, y, width, s->height, shade, s->row[row]);
}

/* Two arrows, or one with two heads, from (x, y) over (dx, dy). */
static void exchange(struct picture *p, double x, double y, double dx, double dy) {
    double aside = dy != 0 ? 0.6 * p->font : 0;
    picture_arrow(p, x - aside, y, x - aside + dx, y + dy, 0, SHADE_BAD, 2, NULL);
    picture_arrow(p, x + aside + dx, y + dy, x + aside, y, 0, SHADE_BAD, 2, NULL);
}

static void draw_boxes(struct picture *p, const struct splits *s, int panel) {
    int parts = panel >= 2 ? s->devices : 1;
    double half = s->width / s->devices / 2; /* of a part */
    for (int row = 0; row < s->rows; row++)
        for (int part = 0; part < parts; part++)
            box(p, s, row, part, parts, panel == 1 ? row * s->devices / s->rows : part);
    for (int row = 1; row < s->rows; row++) {
        double y = s->top + (s->rows - row) * s->each - (s->each - s->height) / 2;
        int is_cut = row * s->devices / s->rows != (row - 1) * s->devices / s->rows;
        if (panel == 1 && is_cut)
            exchange(p, s->x + s->width / 2, y + s->each / 4, 0, -s->each / 2);
        if (panel == 2) exchange(p, s->x + half, y, s->width - 2 * half, 0);
    }
}

static void draw_panel(struct picture *p, const struct splits *s, int panel) {
    static const char *const heads[PANELS] = {"on one device", "by layers", "inside layers",
                                              "by data"};
    int parts = panel == 3 ? s->devices : 1;
    double f = p->font, y = s->top + s->rows * s->each,
           width = (s->width - (parts - 1) * 6) / parts;
    char bytes[32];
    picture_head(p, s->x, s->top - f, "%s", heads[panel]);
    draw_boxes(p, s, panel);
    for (int i = 0; i < parts; i++) {
        double x = s->x + i * (width + 6);
        picture_outline(p, x, y, width, s->height, SHADE_QUIET, NULL);
        picture_text(p, x + width / 2, y + 0.7 * s->height, ANCHOR_MIDDLE, SHADE_TEXT, "%d%s",
                     s->run->batch_size / parts,
                     parts == 1 ? " samples" : (parts == 2 ? " each" : ""));
    }
    if (panel == 3) exchange(p, s->x + width / 2, s->top - f / 3, s->width - width, 0);
    bytes_words(4.0 * (double)s->run->parameter_count, bytes);
    y += s->height + 1.4 * f;
    const char *const says[PANELS][2] = {{bytes, "of parameters"},
                                         {"activations up,", "gradients down"},
                                         {"parts put together", "after each layer"},
                                         {bytes, "of gradients a step"}};
    for (int line = 0; line < 2; line++)
        picture_text(p, s->x, y + line * 1.25 * f, ANCHOR_START, SHADE_QUIET, "%s",
                     says[panel][line]);
}

int draw_splits(struct picture *p, const struct page *page, int index) {
    struct splits s = {.run = first_run(page)};
    struct key_item items[MOST_SPLIT];
    char names[MOST_SPLIT][16];
    double f = p->font;
    (void)index;
    s.devices = most_devices(page) < MOST_SPLIT ? most_devices(page) : MOST_SPLIT;
    name_rows(&s);
    for (int d = 0; d < s.devices; d++) {
        snprintf(names[d], sizeof names[d], "device %d", d);
        items[d] = (struct key_item){shade_of_rank(d), names[d], 0};
    }
    s.top = picture_key(p, 0, items, s.devices, 0) + 3 * f;
    s.height = 1.7 * f, s.each = 2.6 * f;
    p->height = s.top + s.rows * s.each + s.height + 3.6 * f;
    picture_open(p, "splits", "Three ways to split a network",
                 "The model on one device, and split over several by layers, inside layers and by "
                 "data.");
    picture_key(p, 0, items, s.devices, 1);
    double gap = 2 * f;
    s.width = (p->width - (PANELS - 1) * gap) / PANELS;
    for (int panel = 0; panel < PANELS; panel++, s.x += s.width + gap)
        draw_panel(p, &s, panel);
    picture_close(p);
    return OK;
}
