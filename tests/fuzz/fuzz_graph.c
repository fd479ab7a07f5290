/* models/graph: every accepted graph is a model that can be made, and every other is refused with
 * an error; an earlier line makes every operand. */
#include "models/graph/graph.h"
#include "models/model.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct graph *g;
    struct model model;
    char *text = as_text(data, size);
    int code = graph_parse(&g, "input", text, size);
    free(text);
    if (code) {
        MUST(!g);
        check_error(code);
        return 0;
    }
    MUST(g->input_count > 0 && graph_of(&g->model) == g);
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].operand_count; k++) {
            int x = g->nodes[i].operands[k];
            MUST(x == GRAPH_NONE || (x < 0 ? ~x < g->tensor_count : x < g->nodes[i].y));
        }
    struct model_options options = {.dropout = -1, .classes = 1, .own = &g->model};
    code = model_open(&model, g->name, &options);
    if (code) check_error(code);
    model_free(&model);
    graph_free(g);
    return 0;
}
