/* Published measurements of recent GPUs: see validation.h, and validation.c for the older ones. The
 * roles of these rows were committed before the clock had predicted any of them. */
#include "clock/validation.h"

/* BERT-base and BERT-large on one machine: batch, time and role of each. */
#define BERT(MACHINE, base, base_ms, base_role, large, large_ms, large_role)          \
    {"J", MACHINE, "bert-base 384", SERIES_TRAIN, {{1, base, base_ms, base_role}}}, { \
        "J", MACHINE, "bert-large 384", SERIES_TRAIN, {                               \
            { 1, large, large_ms, large_role }                                        \
        }                                                                             \
    }

// clang-format off
/* Convolutions only, in TF32 where the GPU has it. */
static const struct series convolutions[] = {
    /* J: as in validation.c, in the same two CSV files of pytorch/ as they were at 0551cb70;
     * batches from pytorch-train-bs-fp32.csv at 08d77c41, that of the A10 from the configuration
     * for 24 GB. Synthetic data. */
    {"J", "lambda-a10", "resnet50", SERIES_DDP, {{1, 224, 641.8, 't'}}},
    {"J", "lambda-a100-40", "resnet50", SERIES_DDP, {{1, 360, 408.2, 't'}}},
    {"J", "lambda-a100-pcie", "resnet50", SERIES_DDP, {{1, 640, 631.2, 't'}, {2, 640, 654.1, 't'}}},
    {"J", "lambda-6000-ada", "resnet50", SERIES_DDP,
      {{1, 496, 766.6, 't'}, {2, 496, 781.7, 't'}, {4, 496, 775.3, 't'}, {8, 496, 774.1, 't'}}},
    {"J", "lambda-h100-pcie", "resnet50", SERIES_DDP,
      {{1, 640, 534.7, 't'}, {2, 640, 539.4, 't'}, {4, 640, 542.5, 't'}, {8, 640, 544.9, 't'}}},
    {"J", "lambda-rtx8000", "resnet50", SERIES_DDP, {{1, 496, 1810.2, 't'}}},
    /* J2: the same example on later H100, the rows "1CC". */
    {"J2", "lambda-h100", "resnet50", SERIES_DDP,
      {{1, 640, 337.2, 't'}, {2, 640, 341.1, 't'}, {4, 640, 341.6, 't'}, {8, 640, 341.7, 't'}}},
    /* K2: NVIDIA/DeepLearningExamples at 46ff3707,
     * PyTorch/Classification/ConvNets/resnext101-32x4d/README.md: container 20.06, DGX A100 of
     * 40 GB and DGX-1 of 16 GB. */
    {"K2", "nvidia-a100-40", "resnext101_32x4d", SERIES_DDP,
      {{1, 128, 426.1, 't'}, {8, 128, 430.2, 't'}}},
    {"K2", "nvidia-dgx1", "resnext101_32x4d", SERIES_DDP,
      {{1, 64, 426.5, 't'}, {8, 64, 444.8, 't'}}},
    /* S: https://github.com/sandeepkumar-skb/pytorch_experiments, torchvision_exp/README.md:
     * ResNet-50 with 128 pictures on a V100, a whole iteration. */
    {"S", "one-v100", "resnet50", SERIES_TRAIN, {{1, 128, 342.4, 't'}}},
    /* X: https://nikolasent.github.io/hardware/deeplearning/benchmark/2025/02/17/ and there
     * RTX5090-Benchmark.html; its float32 once more in github.com/nehemiah888/rtx5090aitest. timm
     * 1.0.14, PyTorch 2.6, pictures a second. The batch was 256, or less by steps of 32 until it
     * fitted, and is not said; such batches differ little in pictures a second, and 192 and 128 are
     * put in here. */
    {"X", "timm-1-3090", "resnet50", SERIES_TRAIN, {{1, 192, 367.1, 't'}}},
    {"X", "timm-1-3090", "vgg16", SERIES_TRAIN, {{1, 128, 490.8, 't'}}},
    {"X", "timm-1-4090", "resnet50", SERIES_TRAIN, {{1, 192, 253.5, 't'}}},
    {"X", "timm-1-4090", "vgg16", SERIES_TRAIN, {{1, 128, 280.4, 't'}}},
    {"X", "timm-1-5090", "resnet50", SERIES_TRAIN, {{1, 192, 170.1, 't'}}},
    {"X", "timm-1-5090", "vgg16", SERIES_TRAIN, {{1, 128, 215.2, 't'}}},
    /* Y: Alvin Li's report of "Project 1, Cloud and Machine Learning", New York University, autumn
     * 2025, commit ccccc1d9: a cloud's L4, 100 iterations, pictures of a folder, which were as fast
     * as random ones. Its RTX 4090 waited for its input and is left out. */
    {"Y", "cloud-l4", "resnet50", SERIES_TRAIN, {{1, 128, 622.6, 't'}}},
};

/* Products in TF32, too, where the GPU has it. */
static const struct series tf32[] = {
    /* J: as above: BERT fine-tuned for SQuAD, 384 tokens, one GPU, sequences a second, whole
     * numbers (12 of them are known to 4 %). NVIDIA's containers let products take TF32. Rows of
     * several GPUs are left out: 100 steps are timed with what comes before the first, and eight
     * H100 are shown to be faster than eight times one. Duet's BERT predicts words where this one
     * finds a span of them, 1.4 % more to compute. */
    BERT("lambda-rtx8000", 96, 2341.5, 't', 32, 2666.7, 't'),
    BERT("lambda-v100", 24, 571.4, 'f', 8, 666.7, 't'),
    BERT("lambda-3090", 48, 564.7, 'f', 16, 666.7, 't'),
    BERT("lambda-a10", 48, 685.7, 't', 16, 842.1, 't'),
    BERT("lambda-a100-40", 80, 446.9, 't', 28, 528.3, 't'),
    BERT("lambda-a100-pcie", 172, 767.9, 't', 64, 914.3, 't'),
    BERT("lambda-a100", 172, 719.7, 'f', 64, 853.3, 't'),
    BERT("lambda-6000-ada", 96, 705.9, 't', 32, 727.3, 't'),
    BERT("lambda-a6000", 96, 950.5, 't', 32, 969.7, 't'),
    BERT("lambda-4090", 48, 350.4, 't', 16, 363.6, 't'),
    BERT("lambda-h100-pcie", 172, 589.0, 't', 64, 659.8, 't'),
    BERT("lambda-h100", 172, 421.6, 't', 64, 453.9, 'b'),
};

static const struct series mixed[] = {
    /* J: as above. Convolutions were not in channels_last, for which the clock has no numbers, so
     * the time of one GPU is given. */
    {"J", "lambda-v100", "resnet50", SERIES_DDP,
      {{1, 256, 307.3, 'g'}, {2, 256, 325.9, 't'}, {4, 256, 329.6, 't'}, {8, 256, 331.7, 't'}}},
    {"J", "lambda-3090", "resnet50", SERIES_DDP, {{1, 448, 495.0, 'g'}, {2, 448, 511.7, 't'}}},
    {"J", "lambda-4090", "resnet50", SERIES_DDP, {{1, 448, 344.4, 'g'}, {2, 448, 363.0, 't'}}},
    {"J", "lambda-a6000", "resnet50", SERIES_DDP, {{1, 928, 1013.1, 'g'}, {2, 928, 1045.6, 't'}}},
    {"J", "lambda-6000-ada", "resnet50", SERIES_DDP,
      {{1, 928, 809.8, 'g'}, {2, 928, 806.6, 't'}, {4, 928, 816.2, 't'}, {8, 928, 806.0, 't'}}},
    {"J", "lambda-a100-pcie", "resnet50", SERIES_DDP,
      {{1, 1280, 838.2, 'g'}, {2, 1280, 859.3, 't'}}},
    {"J", "lambda-a100", "resnet50", SERIES_DDP,
      {{1, 1280, 809.1, 'g'}, {2, 1280, 842.7, 't'}, {4, 1280, 843.5, 't'}, {8, 1280, 895.2, 't'}}},
    {"J", "lambda-h100-pcie", "resnet50", SERIES_DDP,
      {{1, 1280, 686.0, 'g'}, {2, 1280, 690.6, 't'}, {4, 1280, 694.0, 't'}, {8, 1280, 696.0, 't'}}},
    {"J", "lambda-h100", "resnet50", SERIES_DDP,
      {{1, 1280, 489.3, 'g'}, {2, 1280, 494.3, 't'}, {4, 1280, 492.0, 't'}, {8, 1280, 494.0, 't'}}},
    /* J: BERT as above, by apex, whose weights are halves. */
    BERT("lambda-rtx8000", 192, 1315.1, 't', 64, 1280.0, 't'),
    BERT("lambda-v100", 48, 254.0, 'f', 16, 280.7, 't'),
    BERT("lambda-3090", 96, 558.1, 'f', 28, 538.5, 't'),
    BERT("lambda-a10", 96, 711.1, 't', 28, 666.7, 't'),
    BERT("lambda-a100-40", 160, 434.8, 't', 48, 410.3, 't'),
    BERT("lambda-a100-pcie", 320, 771.1, 't', 112, 800.0, 't'),
    BERT("lambda-a100", 320, 722.3, 'f', 112, 736.8, 't'),
    BERT("lambda-6000-ada", 192, 752.9, 't', 64, 810.1, 't'),
    BERT("lambda-a6000", 192, 969.7, 't', 64, 941.2, 't'),
    BERT("lambda-4090", 96, 323.2, 't', 28, 301.1, 't'),
    BERT("lambda-h100-pcie", 320, 564.4, 't', 112, 551.7, 't'),
    BERT("lambda-h100", 320, 394.1, 't', 112, 372.1, 'b'),
    /* K2: as above, channels_last. */
    {"K2", "nvidia-a100-40", "resnext101_32x4d", SERIES_DDP,
      {{1, 128, 140.9, 't'}, {8, 128, 148.7, 't'}}},
    {"K2", "nvidia-dgx1", "resnext101_32x4d", SERIES_DDP,
      {{1, 128, 239.3, 't'}, {8, 128, 255.9, 't'}}},
    /* S, Y: as above, channels_last. */
    {"S", "one-v100", "resnet50", SERIES_TRAIN, {{1, 128, 110.9, 't'}}},
    {"Y", "cloud-l4", "resnet50", SERIES_TRAIN, {{1, 256, 673.7, 't'}}},
    /* W: https://willgpaik-github-io.pages.dev/portfolio/pytorch-ddp-bench: data there already; the
     * memory format is not said, so the time of one GPU is given. */
    {"W", "paik-v100", "resnet152", SERIES_DDP, {{1, 128, 254.5, 'g'}, {8, 128, 266.8, 't'}}},
    {"W", "paik-a100", "resnet152", SERIES_DDP, {{1, 512, 430.3, 'g'}, {8, 512, 441.8, 't'}}},
    /* Z: "Efficient Training of Large Language Models", the README of a minGPT on Lightning Lite:
     * FSDP by block on four V100 of an AWS p3.8xlarge, texts of 128 tokens, means of 100
     * iterations. Its vocabulary is one of letters, 5 % fewer parameters than GPT-2 XL has. It
     * gathers nothing ahead: backward_prefetch is in its last table only. Left out are batch
     * 8, where cudaMalloc is tried again, and activation checkpoints, which Duet has not. */
    {"Z", "p3-8xlarge", "gpt2-xl 128", SERIES_FSDP,
      {{4, 1, 823, 't'}, {4, 2, 754, 't'}, {4, 4, 744, 't'}, {4, 7, 748, 't'}}},
};
// clang-format on

const struct series_part series_recent[RECENT_PARTS] = {
    {convolutions, sizeof convolutions / sizeof *convolutions, CLOCK_AS_PYTORCH},
    {tf32, sizeof tf32 / sizeof *tf32, CLOCK_TF32},
    {mixed, sizeof mixed / sizeof *mixed, CLOCK_AMP},
};
