/* The table of colours: see palette.h. */
#include "report/pictures/palette.h"

static const struct {
    const char *name, *light, *dark;
    int strong; /* 1: text on it is white, in both themes */
} shades[SHADE_COUNT] = {
    [SHADE_TEXT] = {"ink", "#1b1f24", "#e8eaed", 0},
    [SHADE_QUIET] = {"quiet", "#57606a", "#a5adb8", 0},
    [SHADE_GRID] = {"grid", "#d5dae0", "#3a424d", 0},
    [SHADE_PAPER] = {"paper", "#ffffff", "#14181d", 0},
    [SHADE_RAISED] = {"raised", "#f2f4f7", "#1e242c", 0},
    [SHADE_BAD] = {"bad", "#b3261e", "#ff8f86", 0},
    [SHADE_SINGLE] = {"single", "#c6ccd3", "#4b5563", 0},
    [SHADE_DP] = {"dp", "#858e98", "#8b95a1", 0},
    [SHADE_DP_OTHER] = {"dp-other", "#a5adb6", "#6b7480", 0},
    [SHADE_DDP] = {"ddp", "#1b1f24", "#e8eaed", 0},
    [SHADE_ON_DARK] = {"on-dark", "#ffffff", "#ffffff", 0},
    [SHADE_ON_LIGHT] = {"on-light", "#14181d", "#14181d", 0},
    [SHADE_WORKSPACE] = {"workspace", "#6e5773", "#9a7fa0", 1},
    [SHADE_NO_CORE] = {"no-core", "#b9c0c8", "#7f8995", 0},
    [SHADE_IDLE] = {"idle", "#e6e9ed", "#2a313a", 0},
    [SHADE_RANKS] = {"rank-0", "#0072b2", "#0072b2", 1},
    [SHADE_RANKS + 1] = {"rank-1", "#e69f00", "#e69f00", 0},
    [SHADE_RANKS + 2] = {"rank-2", "#009e73", "#009e73", 1},
    [SHADE_RANKS + 3] = {"rank-3", "#cc79a7", "#cc79a7", 0},
    [SHADE_RANKS + 4] = {"rank-4", "#7cc4ee", "#7cc4ee", 0},
    [SHADE_RANKS + 5] = {"rank-5", "#d55e00", "#d55e00", 1},
    [SHADE_RANKS + 6] = {"rank-6", "#f0e442", "#f0e442", 0},
    [SHADE_RANKS + 7] = {"rank-7", "#6459bb", "#6459bb", 1},
    [SHADE_PHASES + PHASE_NONE] = {"none", "#c9ced4", "#aab2bb", 0},
    [SHADE_PHASES + PHASE_LOADER] = {"loader", "#c9ced4", "#aab2bb", 0},
    [SHADE_PHASES + PHASE_INPUT] = {"input", "#9aa3ad", "#8b95a1", 0},
    [SHADE_PHASES + PHASE_SCATTER] = {"scatter", "#f3c76a", "#f3c76a", 0},
    [SHADE_PHASES + PHASE_REPLICATE] = {"replicate", "#e69f00", "#e69f00", 0},
    [SHADE_PHASES + PHASE_FORWARD] = {"forward", "#7cc4ee", "#7cc4ee", 0},
    [SHADE_PHASES + PHASE_GATHER] = {"gather", "#d55e00", "#d55e00", 1},
    [SHADE_PHASES + PHASE_LOSS] = {"loss", "#009e73", "#009e73", 1},
    [SHADE_PHASES + PHASE_SCATTER_GRAD] = {"scatter-grad", "#ee9d63", "#ee9d63", 0},
    [SHADE_PHASES + PHASE_BACKWARD] = {"backward", "#0072b2", "#1f86c6", 1},
    [SHADE_PHASES + PHASE_REDUCE] = {"reduce", "#9c3d00", "#b34a07", 1},
    [SHADE_PHASES + PHASE_ALLREDUCE] = {"allreduce", "#cc79a7", "#cc79a7", 0},
    [SHADE_PHASES + PHASE_OPTIMIZER] = {"optimizer", "#e8d92f", "#e8d92f", 0},
    [SHADE_PHASES + PHASE_EVALUATE] = {"evaluate", "#b9c0c8", "#98a2ad", 0},
    [SHADE_PHASES + PHASE_PROOF] = {"proof", "#a89a86", "#b0a28f", 0},
};

enum shade shade_of_mode(enum run_mode mode, int other) {
    return mode == MODE_SINGLE ? SHADE_SINGLE
           : mode == MODE_DDP  ? SHADE_DDP
           : other             ? SHADE_DP_OTHER
                               : SHADE_DP;
}

enum shade shade_of_cause(int cause) {
    static const enum phase phases[MEM_CAUSE_COUNT] = {
        [MEM_PARAMS] = PHASE_REPLICATE,    [MEM_GRADS] = PHASE_BACKWARD,
        [MEM_OPTIMIZER] = PHASE_OPTIMIZER, [MEM_ACTIVATIONS] = PHASE_FORWARD,
        [MEM_INPUT] = PHASE_INPUT,         [MEM_GATHERED] = PHASE_GATHER,
        [MEM_COMM] = PHASE_ALLREDUCE};
    return cause == MEM_WORKSPACE ? SHADE_WORKSPACE : shade_of_phase(phases[cause]);
}

enum shade shade_of_text_on(enum shade shade) {
    return shades[shade].strong ? SHADE_ON_DARK : SHADE_ON_LIGHT;
}

/* A new phase or cause has no colour yet, and uses the colour of "none". */
static int known(enum shade shade) {
    return shades[shade].name ? (int)shade : SHADE_PHASES + PHASE_NONE;
}

const char *shade_class(enum shade shade) {
    return shades[known(shade)].name;
}

const char *shade_colour(enum shade shade) {
    return shades[known(shade)].light;
}

static void variables(FILE *file, const char *selector, int dark) {
    fprintf(file, "%s{color-scheme:%s", selector, dark ? "dark" : "light");
    for (int s = 0; s < SHADE_COUNT; s++)
        if (shades[s].name)
            fprintf(file, ";--%s:%s", shades[s].name, dark ? shades[s].dark : shades[s].light);
    fprintf(file, "}\n");
}

void palette_css(FILE *file) {
    variables(file, ":root", 0);
    fprintf(file, "@media screen and (prefers-color-scheme:dark){\n");
    variables(file, ":root", 1);
    fprintf(file, "}\n");
    for (int s = 0; s < SHADE_COUNT; s++)
        if (shades[s].name)
            fprintf(file, ".%s{fill:var(--%s)}.s-%s{stroke:var(--%s);fill:none}\n", shades[s].name,
                    shades[s].name, shades[s].name, shades[s].name);
}
