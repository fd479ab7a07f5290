/* Nets for estimates only, stored as the graphs of models/nets/: torchvision's image networks, and
 * transformers. scripts/make_nets.py writes them from torchvision itself, so a step has the
 * original's kernels and gradients of the same sizes. Their results have not been compared with
 * PyTorch's.
 *
 * A graph is parsed when its model is opened, for the samples and classes of the run. */
#include <string.h>

#include "base/embed.h"
#include "base/error.h"
#include "base/text/nearest.h"
#include "models/graph/graph.h"
#include "models/models.h"

/* The C name of a text, the name of the net, and the sizes of a sample; of a transformer the fewest
 * and the most tokens. */
// clang-format off
#define EACH_NET(NET) \
    NET(resnet18, "torchvision-resnet18", 3, 224, 224, 0, 0) \
    NET(resnet34, "resnet34", 3, 224, 224, 0, 0) \
    NET(resnet50, "resnet50", 3, 224, 224, 0, 0) \
    NET(resnet101, "resnet101", 3, 224, 224, 0, 0) \
    NET(resnet152, "resnet152", 3, 224, 224, 0, 0) \
    NET(resnext50, "resnext50_32x4d", 3, 224, 224, 0, 0) \
    NET(resnext101_4d, "resnext101_32x4d", 3, 224, 224, 0, 0) \
    NET(resnext101, "resnext101_32x8d", 3, 224, 224, 0, 0) \
    NET(wide_resnet50, "wide_resnet50_2", 3, 224, 224, 0, 0) \
    NET(vgg16, "vgg16", 3, 224, 224, 0, 0) \
    NET(vgg16_bn, "vgg16_bn", 3, 224, 224, 0, 0) \
    NET(vgg19, "vgg19", 3, 224, 224, 0, 0) \
    NET(vgg19_bn, "vgg19_bn", 3, 224, 224, 0, 0) \
    NET(densenet121, "densenet121", 3, 224, 224, 0, 0) \
    NET(squeezenet, "squeezenet1_0", 3, 224, 224, 0, 0) \
    NET(mobilenet, "mobilenet_v2", 3, 224, 224, 0, 0) \
    NET(efficientnet, "efficientnet_b0", 3, 224, 224, 0, 0) \
    NET(gpt2_small, "gpt2-small", 128, 1, 1, 1, 1024) \
    NET(gpt2_medium, "gpt2-medium", 128, 1, 1, 1, 1024) \
    NET(gpt2_large, "gpt2-large", 128, 1, 1, 1, 1024) \
    NET(gpt2_xl, "gpt2-xl", 128, 1, 1, 1, 1024) \
    NET(gpt_characters, "gpt-18.9m", 128, 1, 1, 1, 128) \
    NET(bert_base, "bert-base", 128, 1, 1, 20, 512) \
    NET(bert_large, "bert-large", 128, 1, 1, 20, 512)

#define TEXT(SYMBOL, NAME, ...) EMBED(net_##SYMBOL, "models/nets/" NAME ".duet");
EACH_NET(TEXT)

#define ROW(SYMBOL, NAME, D, H, W, FEWEST, MOST) \
    {{.name = NAME, .sample = {D, H, W}, .context = (void *)net_##SYMBOL}, FEWEST, MOST},
static const struct net {
    struct duet_model model;
    int fewest, most; /* number of tokens; 0: the net has none */
} nets[] = {EACH_NET(ROW)};
// clang-format on
enum { NETS = sizeof nets / sizeof *nets };

const struct duet_model *net_find(const char *name) {
    for (int i = 0; i < NETS; i++)
        if (!strcmp(nets[i].model.name, name)) return &nets[i].model;
    return NULL;
}

const char *net_like(const char *word) {
    const char *names[NETS];
    for (int i = 0; i < NETS; i++) {
        names[i] = nets[i].model.name;
        if (strlen(word) > 2 && strcasestr(names[i], word)) return names[i];
    }
    return nearest_word(word, names, NETS);
}

/* A sample of a transformer is its tokens, each with a position; that of any other net an image. */
static int check_sample(const struct net *net, const struct sample_shape *s) {
    const int is_row = s->height * s->width == 1;
    char text[SAMPLE_SHAPE_BYTES];
    if (net->most ? is_row && s->channels >= net->fewest && s->channels <= net->most : !is_row)
        return OK;
    if (!net->most)
        return fail(ERR_USAGE, "model %s: samples of %s: give an image, such as --shape 3x224x224",
                    net->model.name, sample_shape_text(s, text));
    return fail(ERR_USAGE, "model %s: samples of %s: give --shape K, of %d to %d tokens",
                net->model.name, sample_shape_text(s, text), net->fewest, net->most);
}

int net_open(struct graph **out, const struct duet_model *model, const struct sample_shape *sample,
             int classes) {
    const int sizes[] = {sample->channels, sample->height, sample->width, classes};
    CHECK(check_sample((const struct net *)model, sample));
    return graph_parse_sized(out, model->name, model->context, strlen(model->context), sizes);
}
