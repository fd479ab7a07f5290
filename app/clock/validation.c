/* The published measurements: see validation.h. Neither the order of the tables nor the choice of
 * rows depends on the clock's results: the split came first. */
#include "clock/validation.h"

#include <stddef.h>

/* Rows of one form: 12 pictures a GPU in B on 1 to 4 GPUs (time 0: there is none) and in C on one
 * of three GPUs; 4 texts in E on 1 and 2. */
// clang-format off
#define B(MACHINE, MODEL, r1, ms1, r2, ms2, r3, ms3, r4, ms4) \
    {"B", MACHINE, MODEL, SERIES_DP, \
     {{1, 12, ms1, r1}, {2, 12, ms2, r2}, {3, 12, ms3, r3}, {4, 12, ms4, r4}}}
#define C_ON(MACHINE, MODEL, r, ms) {"C", MACHINE, MODEL, SERIES_SINGLE, {{1, 12, ms, r}}}
#define C(MODEL, r1, ms1, r2, ms2, r3, ms3) \
    C_ON("pc-1080ti", MODEL, r1, ms1), C_ON("pc-titan-v", MODEL, r2, ms2), \
    C_ON("pc-2080ti", MODEL, r3, ms3)
#define E(MACHINE, MODEL, WAY, ms1, ms2, r2) \
    {"E", MACHINE, MODEL, WAY, {{1, 4, ms1, 'g'}, {2, 4, ms2, r2}}}

static const struct series all[] = {
    /* B: https://github.com/ryujaehun/pytorch-gpu-benchmark at 3f47a9e. fp32 (TF32 on the A100),
     * 12 pictures of 3x224x224 for each GPU, median of 50 steps. Within the time: zero_grad, a
     * pageable copy of the batch to device 0, forward, loss on device 0, backward. Fit: the
     * model with few parameters, the one with many modules, the one with many bytes, at 1, 2 and
     * 4 GPUs. The fourth TITAN Xp was disturbed (its mean is far above the median) and is left
     * out. */
    B("dgx-a100-2020", "resnet18", 'f', 16.04, 'f', 29.71, 't', 40.54, 'f', 47.71),
    B("dgx-a100-2020", "resnet34", 't', 25.02, 't', 47.61, 't', 61.52, 't', 76.21),
    B("dgx-a100-2020", "resnet50", 't', 35.96, 't', 67.84, 't', 81.32, 'h', 103.26),
    B("dgx-a100-2020", "resnet101", 'f', 64.34, 'f', 124.99, 't', 146.82, 'f', 183.17),
    B("dgx-a100-2020", "resnet152", 't', 92.24, 't', 179.61, 't', 210.85, 't', 270.33),
    B("dgx-a100-2020", "vgg16", 'f', 27.68, 'f', 37.14, 't', 39.82, 'f', 43.49),
    B("dgx-a100-2020", "vgg19_bn", 't', 39.46, 't', 51.71, 't', 55.97, 't', 61.25),
    B("titan-rtx-x4", "resnet18", 'f', 23.99, 'f', 45.33, 't', 55.01, 'f', 64.99),
    B("titan-rtx-x4", "resnet34", 't', 37.84, 't', 72.08, 't', 84.81, 't', 100.05),
    B("titan-rtx-x4", "resnet50", 't', 64.87, 'h', 103.32, 't', 120.40, 't', 138.63),
    B("titan-rtx-x4", "resnet101", 'f', 99.79, 'f', 177.25, 't', 205.26, 'f', 238.59),
    B("titan-rtx-x4", "resnet152", 't', 150.93, 't', 247.61, 't', 290.17, 'h', 340.35),
    B("titan-rtx-x4", "vgg16", 'f', 84.59, 'f', 188.92, 't', 197.43, 'f', 203.58),
    B("titan-rtx-x4", "vgg19_bn", 't', 110.01, 't', 218.21, 't', 226.01, 't', 231.95),
    B("titan-xp-x4", "resnet18", 'f', 30.78, 'f', 49.14, 'f', 60.00, '-', 0),
    B("titan-xp-x4", "resnet34", 't', 44.47, 't', 73.76, 't', 85.06, '-', 0),
    B("titan-xp-x4", "resnet50", 't', 74.99, 't', 108.43, 't', 125.58, '-', 0),
    B("titan-xp-x4", "resnet101", 'f', 119.11, 'f', 178.35, 'f', 204.07, '-', 0),
    B("titan-xp-x4", "resnet152", 't', 165.13, 't', 250.91, 't', 294.27, '-', 0),
    B("titan-xp-x4", "vgg16", 'f', 108.30, 'f', 219.13, 'f', 232.08, '-', 0),
    B("titan-xp-x4", "vgg19_bn", 't', 138.28, 't', 256.29, 't', 267.49, '-', 0),
    B("2080ti-x4", "resnet18", 'f', 19.82, 'f', 41.18, 't', 54.18, 'f', 55.19),
    B("2080ti-x4", "resnet34", 't', 32.74, 't', 64.27, 't', 81.74, 't', 84.54),
    B("2080ti-x4", "resnet50", 't', 55.91, 't', 88.75, 't', 110.88, 't', 118.62),
    B("2080ti-x4", "resnet101", 'f', 92.66, 'f', 145.93, 't', 192.80, 'f', 199.14),
    B("2080ti-x4", "resnet152", 't', 127.90, 't', 202.42, 't', 272.51, 't', 273.38),
    B("2080ti-x4", "vgg16", 'f', 85.36, 'f', 211.17, 't', 347.97, 'f', 232.12),
    B("2080ti-x4", "vgg19_bn", 't', 113.49, 't', 243.95, 't', 385.65, 'h', 263.99),
    /* Models of other kinds, from the same table, which nobody had looked at until all other rows
     * stood. Fit: one GPU of the two on the A100, for what concatenation and groups cost. */
    B("dgx-a100-2020", "densenet121", 'f', 74.42, 't', 142.24, 't', 181.46, 't', 231.38),
    B("dgx-a100-2020", "resnext50_32x4d", 'f', 46.73, 't', 73.01, 't', 89.66, 't', 103.63),
    B("titan-rtx-x4", "squeezenet1_0", 't', 21.64, 't', 33.47, 't', 41.09, 't', 50.83),
    /* C: the same repository, older script: one GPU, the data there already, the same batch.
     * Fit: the GTX 1080 Ti and the TITAN V on five models; the RTX 2080 Ti is all held out. */
    C("resnet18", 'f', 22.48, 'f', 16.69, 't', 16.36),
    C("resnet34", 't', 36.80, 't', 28.27, 't', 28.44),
    C("resnet50", 'f', 68.87, 'f', 50.54, 't', 49.63),
    C("resnet101", 't', 112.8, 't', 84.59, 't', 81.40),
    C("resnet152", 'f', 158.7, 'f', 119.5, 't', 115.1),
    C("vgg16", 'f', 101.8, 'f', 72.85, 't', 75.86),
    C("vgg16_bn", 'f', 114.1, 'f', 80.95, 't', 85.42),
    C("vgg19", 't', 119.9, 't', 85.55, 't', 88.05),
    C("vgg19_bn", 't', 133.2, 't', 94.42, 't', 98.43),
    C("densenet121", 'f', 77.2, 'f', 56.2, 't', 57.7),
    /* D: the same author, DGX Station, 4 V100, PyTorch about 1.0: ResNet-50, forward alone
     * (evaluation mode), the batch is split over the GPUs. Its rows "half" and "double" are fp32
     * too, by a fault of its script, and are left out. */
    {"D", "dgx-station", "resnet50", SERIES_DP_FORWARD,
      {{1, 16, 15.7, 'f'}, {2, 8, 25.3, 'f'}, {3, 6, 32.5, 'f'}, {4, 4, 40.0, 'f'}}},
    {"D", "dgx-station", "resnet50", SERIES_DP_FORWARD,
      {{1, 32, 29.0, 'g'}, {2, 16, 27.0, 't'}, {3, 11, 32.7, 't'}, {4, 8, 39.8, 't'}}},
    {"D", "dgx-station", "resnet50", SERIES_DP_FORWARD,
      {{1, 64, 54.7, 'g'}, {2, 32, 38.3, 't'}, {3, 22, 35.3, 'h'}, {4, 16, 40.5, 't'}}},
    {"D", "dgx-station", "resnet50", SERIES_DP_FORWARD,
      {{1, 128, 105.8, 'g'}, {2, 64, 62.6, 't'}, {3, 43, 50.4, 't'}, {4, 32, 45.6, 'f'}}},
    /* A: https://github.com/smolix/d2l-neu at e14d97f (2026): 4 RTX 4090, PCIe, two behind each
     * of two host bridges, no peer-to-peer. PyTorch 2.11, CUDA 12.8, TF32, cudnn.benchmark on,
     * DDP. d2l's ResNet-18 on 1x64x64, SGD; GPT of 18.9 M parameters, 64 x 128 tokens for each
     * rank, AdamW; its vocabulary, which is not stated, is taken for 28 characters. It has samples
     * a second, 2107, 3714 and 6924 in A1, and tokens a second in A4: ms = 1000 batch / these. A6:
     * 29.3 and 17.0 s an epoch of 60000 samples, DataParallel; all of its other captures are of a
     * machine that had other work. */
    {"A1", "4090-x4", "resnet18-d2l", SERIES_DDP,
      {{1, 256, 121.5, 'f'}, {2, 256, 137.9, 'f'}, {4, 256, 147.9, 'h'}}},
    {"A2", "4090-x4", "resnet18-d2l", SERIES_DDP,
      {{1, 512, 244.7, 'f'}, {2, 256, 137.7, 't'}, {4, 128, 87.0, 't'}}},
    {"A6", "4090-x4", "resnet18-d2l", SERIES_DP_TRAIN,
      {{1, 256, 125.0, 'g'}, {2, 256, 145.1, 'b'}}},
    {"A4", "4090-x4", "gpt-18.9m", SERIES_DDP,
      {{1, 64, 30.6, 'g'}, {2, 64, 55.2, 'h'}, {4, 64, 72.2, 't'}}},
    /* E: https://github.com/huggingface/transformers/issues/9371: 2 TITAN RTX with an NVLink
     * bridge, GPT-2, fp32, batch 4 for each GPU, blocks of 128, 256 and 512 tokens. PyTorch 1.8,
     * CUDA 11, AdamW. The loss is computed in forward and the scores are gathered all the same; the
     * clock has DP gather them and then compute the loss. */
    E("titan-rtx-nvlink", "gpt2-small 128", SERIES_DP_TRAIN, 48.9, 83.2, 'f'),
    E("titan-rtx-nvlink", "gpt2-small 128", SERIES_DDP, 48.9, 67.7, 'f'),
    E("titan-rtx-host", "gpt2-small 128", SERIES_DDP, 48.9, 150.1, 'f'),
    E("titan-rtx-nvlink", "gpt2-small 256", SERIES_DP_TRAIN, 76.1, 113.0, 't'),
    E("titan-rtx-nvlink", "gpt2-small 256", SERIES_DDP, 76.1, 93.5, 't'),
    E("titan-rtx-host", "gpt2-small 256", SERIES_DDP, 76.1, 177.1, 't'),
    E("titan-rtx-nvlink", "gpt2-small 512", SERIES_DP_TRAIN, 145.2, 188.2, 't'),
    E("titan-rtx-nvlink", "gpt2-small 512", SERIES_DDP, 145.2, 161.8, 't'),
    E("titan-rtx-host", "gpt2-small 512", SERIES_DDP, 145.2, 246.0, 't'),
    E("titan-rtx-nvlink", "gpt2-medium 128", SERIES_DP_TRAIN, 123.5, 203.0, 'f'),
    E("titan-rtx-nvlink", "gpt2-medium 128", SERIES_DDP, 123.5, 167.2, 'f'),
    E("titan-rtx-host", "gpt2-medium 128", SERIES_DDP, 123.5, 375.0, 'f'),
    E("titan-rtx-nvlink", "gpt2-medium 256", SERIES_DP_TRAIN, 199.2, 280.2, 't'),
    E("titan-rtx-nvlink", "gpt2-medium 256", SERIES_DDP, 199.2, 238.8, 't'),
    E("titan-rtx-host", "gpt2-medium 256", SERIES_DDP, 199.2, 446.8, 't'),
    E("titan-rtx-nvlink", "gpt2-medium 512", SERIES_DP_TRAIN, 381.5, 462.3, 't'),
    E("titan-rtx-nvlink", "gpt2-medium 512", SERIES_DDP, 381.5, 411.0, 't'),
    E("titan-rtx-host", "gpt2-medium 512", SERIES_DDP, 381.5, 620.7, 't'),
    E("titan-rtx-nvlink", "gpt2-large 128", SERIES_DP_TRAIN, 246.5, 396.0, 'h'),
    E("titan-rtx-nvlink", "gpt2-large 128", SERIES_DDP, 246.5, 328.9, 't'),
    E("titan-rtx-host", "gpt2-large 128", SERIES_DDP, 246.5, 761.0, 'h'),
    /* F: PyTorch, benchmarks/distributed/ddp, README at bf69c14: DGX-1 with 8 V100, PyTorch 1.4,
     * CUDA 10.0, fp32, batch 32 for each GPU, SGD, p50. */
    {"F", "dgx1-2019", "resnet50", SERIES_DDP,
      {{1, 32, 100, 'f'}, {2, 32, 103, 'f'}, {4, 32, 103, 'f'}, {8, 32, 104, 'f'},
      {16, 32, 104, 't'}}},
    {"F", "dgx1-2019", "resnet101", SERIES_DDP,
      {{1, 32, 171, 't'}, {2, 32, 176, 't'}, {4, 32, 176, 't'}, {8, 32, 179, 't'},
      {16, 32, 179, 't'}}},
    {"F", "dgx1-2019", "resnext50_32x4d", SERIES_DDP,
      {{1, 32, 147, 'f'}, {2, 32, 153, 't'}, {4, 32, 153, 't'}, {8, 32, 157, 't'},
      {16, 32, 157, 't'}}},
    {"F", "dgx1-2019", "resnext101_32x8d", SERIES_DDP,
      {{1, 32, 425, 't'}, {2, 32, 438, 't'}, {4, 32, 439, 't'}, {8, 32, 447, 't'},
      {16, 32, 450, 't'}}},
    /* G: an older README of the same tool and machines (pytorch/pytorch#30660, build fcb7371), up
     * to eight nodes. The two builds differ by 4 % on eight GPUs. */
    {"G", "dgx1-2019", "resnet50", SERIES_DDP,
      {{1, 32, 97, 't'}, {2, 32, 104, 't'}, {4, 32, 105, 't'}, {8, 32, 108, 't'},
      {16, 32, 109, 't'}, {24, 32, 111, 't'}}},
    {"G", "dgx1-2019", "resnet50", SERIES_DDP,
      {{1, 32, 97, 't'}, {32, 32, 110, 't'}, {40, 32, 113, 't'}, {48, 32, 112, 't'},
      {56, 32, 115, 't'}, {64, 32, 113, 't'}}},
    /* I: https://github.com/Oneflow-Inc/DLPerf at c89430b: nodes of 8 V100-SXM2-16GB with one
     * 100 Gb card each, NGC PyTorch 20.03; medians of 5 to 7 runs. ResNet-50 with 128 pictures,
     * BERT-base with 32 sequences of 128 tokens for each GPU, fp32, all sums after backward; its
     * FusedAdam is taken for AdamW. It has samples a second. BERT's time on one GPU had role f at
     * first, and a factor on kernels was fitted to it; a number for one model alone is none of a
     * machine, so the time is given. */
    {"I", "v100-edr", "resnet50", SERIES_DDP,
      {{1, 128, 348.5, 'f'}, {4, 128, 353.2, 't'}, {8, 128, 354.6, 'f'}, {16, 128, 358.3, 't'},
      {32, 128, 375.2, 't'}}},
    {"I", "v100-edr", "bert-base", SERIES_DDP_AFTER,
      {{1, 32, 267.6, 'g'}, {4, 32, 279.6, 't'}, {8, 32, 277.9, 'f'}, {16, 32, 341.5, 't'},
      {32, 32, 354.8, 'h'}}},
    {"I", "v100-edr", "bert-base", SERIES_DDP_AFTER,
      {{1, 48, 393.6, 'g'}, {4, 48, 413.2, 't'}, {8, 48, 413.8, 't'}, {16, 48, 484.7, 't'},
      {32, 48, 505.4, 't'}}},
    /* the same machines, PyTorch 1.6 and its imagenet example with DALI */
    {"I2", "v100-edr", "resnet50", SERIES_DDP,
      {{1, 128, 365.0, 'g'}, {4, 128, 391.9, 't'}, {8, 128, 378.2, 't'}, {16, 128, 394.4, 't'},
      {32, 128, 408.3, 't'}}},
    /* J: https://github.com/lambdal/deeplearning-benchmark at aa5addb: NVIDIA's example of
     * ResNet-50, DDP, TF32 from Ampere on; samples a second. The machines are not described, so
     * none is calibrated. Of most GPUs the first number has set what `reached` is. */
    {"J", "lambda-v100", "resnet50", SERIES_DDP,
      {{1, 128, 346.9, 't'}, {2, 128, 360.6, 't'}, {4, 128, 360.1, 't'}, {8, 128, 363.5, 't'}}},
    {"J", "lambda-3090", "resnet50", SERIES_DDP, {{1, 224, 436.6, 'f'}, {2, 224, 457.6, 't'}}},
    {"J", "lambda-4090", "resnet50", SERIES_DDP, {{1, 224, 310.7, 'f'}, {2, 224, 328.7, 't'}}},
    {"J", "lambda-a6000", "resnet50", SERIES_DDP, {{1, 496, 965.0, 'f'}, {2, 496, 997.0, 't'}}},
    {"J", "lambda-a100", "resnet50", SERIES_DDP,
      {{1, 640, 600.4, 'f'}, {2, 640, 630.9, 't'}, {4, 640, 633.3, 't'}, {8, 640, 692.2, 't'}}},
    {"J", "lambda-h100", "resnet50", SERIES_DDP,
      {{1, 640, 365.1, 'f'}, {2, 640, 368.1, 't'}, {4, 640, 369.4, 't'}, {8, 640, 369.5, 't'}}},
    {"J", "lambda-b200", "resnet50", SERIES_DDP,
      {{1, 1664, 560.8, 'f'}, {2, 1664, 566.4, 't'}, {4, 1664, 567.4, 't'}, {8, 1664, 567.8, 't'}}},
    /* K: https://github.com/NVIDIA/DeepLearningExamples at 729963d: the same example of NVIDIA's
     * own, container 21.03, samples a second; batches as in its configs.yml. */
    {"K", "nvidia-a100", "resnet50", SERIES_DDP, {{1, 256, 272.9, 't'}, {8, 256, 282.6, 't'}}},
    {"K", "nvidia-dgx1", "resnet50", SERIES_DDP, {{1, 112, 305.2, 't'}, {8, 112, 313.8, 't'}}},
};

/* Mixed precision, float16: autocast, or NVIDIA's apex before it. Nobody had looked at a modelled
 * time of these when the roles were given. */
static const struct series mixed[] = {
    /* K: as above, channels_last. */
    {"K", "nvidia-a100", "resnet50", SERIES_DDP,
      {{1, 256, 103.6, 'f'}, {8, 256, 123.2, 't'}}},
    {"K", "nvidia-dgx1", "resnet50", SERIES_DDP,
      {{1, 256, 213.3, 't'}, {8, 256, 246.1, 't'}}},
    /* I: as above. Whether it was channels_last is not known, so the time of one GPU is given.
     * BERT on several nodes is left out: it is between the sums of gradients of four bytes and
     * of two, and which they were is not known. */
    {"I", "v100-edr", "resnet50", SERIES_DDP,
      {{1, 256, 318.8, 'g'}, {4, 256, 326.4, 't'}, {8, 256, 332.8, 't'}, {16, 256, 341.6, 't'},
      {32, 256, 363.3, 't'}}},
    {"I", "v100-edr", "bert-base", SERIES_DDP_AFTER,
      {{1, 64, 144.0, 'g'}, {4, 64, 153.1, 't'}, {8, 64, 157.5, 't'}}},
    {"I", "v100-edr", "bert-base", SERIES_DDP_AFTER,
      {{1, 96, 207.6, 'g'}, {4, 96, 222.2, 't'}, {8, 96, 233.6, 't'}}},
    /* T: https://github.com/huggingface/pytorch-image-models at 5e7d47c,
     * results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv: autocast, channels_last, one GPU,
     * the data there already, SGD; PyTorch 1.12, CUDA 11.3. Fit: few parameters, many modules, many
     * bytes, groups. */
    {"T", "timm-3090", "resnet18", SERIES_TRAIN, {{1, 512, 146.7, 'f'}}},
    {"T", "timm-3090", "resnet34", SERIES_TRAIN, {{1, 512, 250.8, 't'}}},
    {"T", "timm-3090", "resnet50", SERIES_TRAIN, {{1, 512, 419.5, 't'}}},
    {"T", "timm-3090", "resnet101", SERIES_TRAIN, {{1, 256, 340.7, 'f'}}},
    {"T", "timm-3090", "resnet152", SERIES_TRAIN, {{1, 192, 380.5, 't'}}},
    {"T", "timm-3090", "vgg16", SERIES_TRAIN, {{1, 384, 703.0, 'f'}}},
    {"T", "timm-3090", "vgg16_bn", SERIES_TRAIN, {{1, 256, 544.0, 't'}}},
    {"T", "timm-3090", "vgg19", SERIES_TRAIN, {{1, 384, 839.3, 't'}}},
    {"T", "timm-3090", "vgg19_bn", SERIES_TRAIN, {{1, 256, 642.0, 't'}}},
    {"T", "timm-3090", "densenet121", SERIES_TRAIN, {{1, 256, 278.4, 't'}}},
    {"T", "timm-3090", "resnext50_32x4d", SERIES_TRAIN, {{1, 384, 382.8, 'f'}}},
    {"T", "timm-3090", "resnext101_32x8d", SERIES_TRAIN, {{1, 128, 407.6, 't'}}},
    {"T", "timm-3090", "wide_resnet50_2", SERIES_TRAIN, {{1, 384, 573.4, 't'}}},
};
// clang-format on

enum { PARTS = 2 + RECENT_PARTS };

static const struct series_part *part_at(int i) {
    static const struct series_part here[] = {
        {all, sizeof all / sizeof *all, CLOCK_AS_PYTORCH},
        {mixed, sizeof mixed / sizeof *mixed, CLOCK_AMP},
    };
    return i < 2 ? &here[i] : &series_recent[i - 2];
}

const struct series *series_at(int i) {
    for (int p = 0; i >= 0 && p < PARTS; i -= part_at(p++)->count)
        if (i < part_at(p)->count) return &part_at(p)->list[i];
    return NULL;
}

enum clock_precision series_precision(const struct series *s) {
    for (int p = 0; p < PARTS; p++) {
        const struct series_part *part = part_at(p);
        if (s >= part->list && s < part->list + part->count) return part->precision;
    }
    return CLOCK_AS_PYTORCH;
}
