/* The table of hardware. clock/hardware.h says what a line means; the source is behind it or
 * above its block. Rates are per direction. [sheet]: the vendor's data sheet; [ml-eng]:
 * github.com/stas00/ml-engineering at 744d01e; [rj]: github.com/ryujaehun/pytorch-gpu-benchmark at
 * 3f47a9e; [nccl]: NCCL 2.30 at 5067397c, src/graph/topo.h and tuning.cc; [fit]: fitted to the rows
 * with role f in clock/validation.c, and to no other. A GPU that nobody measured here has the
 * `reached` of a measured one of its generation; the RTX 5090 has that of the generation before. */
#include "clock/hardware.h"

#include <stddef.h>

// clang-format off
static const char *const table[] = {
    /* fp32, tensor (TF32, dense) and half (float16, of GPUs without TF32 [sheet]) in TFLOP/s */
    "gpu gtx1080ti fp32 11.34 tensor 0 gbs 484 gib 11     # [rj]",
    "gpu titan-xp fp32 12.15 tensor 0 gbs 547.6 gib 12    # [rj]",
    "gpu p100 fp32 10.6 tensor 0 gbs 732 gib 16           # SXM2 [sheet]",
    "gpu titan-v fp32 14.9 tensor 0 half 110 gbs 653 gib 12        # [rj]",
    "gpu v100 fp32 15.7 tensor 0 half 125 gbs 900 gib 16           # SXM2 [sheet]",
    "gpu t4 fp32 8.1 tensor 0 half 65 gbs 320 gib 16              # [sheet]",
    "gpu rtx8000 fp32 16.3 tensor 0 half 130.5 gbs 672 gib 48        # Quadro [sheet]",
    "gpu rtx2080ti fp32 13.45 tensor 0 half 53.8 gbs 616 gib 11     # [rj]",
    "gpu titan-rtx fp32 16.31 tensor 0 half 130.5 gbs 672 gib 24     # [rj]",
    "gpu rtx3090 fp32 35.58 tensor 35.6 gbs 936 gib 24 reached 0.60     # [sheet]",
    "gpu rtx4090 fp32 82.58 tensor 82.6 gbs 1008 gib 24 reached 0.69    # [sheet]",
    /* TF32 of the next three: as fp32, as it is on the two above; [sheet] does not say it. */
    "gpu rtx3060 fp32 12.7 tensor 12.7 gbs 360 gib 12 reached 0.60      # 12 GB [sheet]",
    "gpu rtx4070 fp32 29.1 tensor 29.1 gbs 504 gib 12 reached 0.69      # [sheet]",
    "gpu rtx5090 fp32 104.8 tensor 104.8 gbs 1792 gib 32 reached 0.69   # [sheet]",
    "gpu l4 fp32 30.3 tensor 60 gbs 300 gib 24 reached 0.69             # [sheet]",
    "gpu l40s fp32 91.6 tensor 183 gbs 864 gib 48 reached 0.69          # [sheet]",
    "gpu a10 fp32 31.2 tensor 62 gbs 600 gib 24 reached 0.70            # [sheet]",
    /* AWS's g5 [sheet]: it has less of tensor cores than an A10 and more of the others. */
    "gpu a10g fp32 35 tensor 35 gbs 600 gib 24 reached 0.70",
    "gpu rtx6000-ada fp32 91.1 tensor 182 gbs 960 gib 48 reached 0.69   # [sheet]",
    "gpu a6000 fp32 38.7 tensor 77 gbs 768 gib 48 reached 0.70          # [sheet]",
    "gpu a100-40 fp32 19.5 tensor 156 gbs 1555 gib 40 reached 0.70      # SXM [ml-eng]",
    "gpu a100-80-pcie fp32 19.5 tensor 156 gbs 1935 gib 80 reached 0.80 # [sheet]",
    "gpu a100-80 fp32 19.5 tensor 156 gbs 2039 gib 80 reached 0.80      # SXM [ml-eng]",
    "gpu h100-pcie fp32 51.2 tensor 378 gbs 2000 gib 80 reached 0.55    # [sheet]",
    "gpu h100 fp32 67 tensor 494.5 gbs 3350 gib 80 reached 0.55         # SXM [ml-eng]",
    "gpu h200 fp32 67 tensor 494.5 gbs 4800 gib 141 reached 0.60        # [ml-eng]",
    "gpu b200 fp32 80 tensor 1125 gbs 8000 gib 180 reached 0.36         # [ml-eng]",

    /* What a transfer reaches. GB/s: [nccl] topo.h: PCIe 3 x16 12, so PCIe 4 24 and PCIe 5 48; of
     * each NVLink P100 18 (Dell, measured), V100 20, A100 20, H100 20.6, and these GPUs have 4, 6,
     * 12 and 18 of them; a bridge of the TITAN RTX has 2. us: [nccl] tuning.cc: one hop of a ring,
     * protocol Simple: PCI 5.7, NVLink 3.4, network 14. */
    "link pcie3 gbs 12 us 5.7",
    "link pcie4 gbs 24 us 5.7",
    "link pcie5 gbs 48 us 5.7",
    "link nvlink1x1 gbs 18 us 3.4",
    "link nvlink2x1 gbs 20 us 3.4",
    "link nvlink2x2 gbs 40 us 3.4",
    "link bridge gbs 40 us 3.4",
    "link bridge4 gbs 48 us 3.4",
    "link nvlink2 gbs 120 us 3.4",
    "link nvlink3 gbs 240 us 3.4",
    "link nvlink4 gbs 370.8 us 3.4",
    "link nvlink5 gbs 720 us 3.4            # 18 links of twice the rate [sheet], 80 % as above",
    "link socket gbs 18 us 0                # between two CPUs: [nccl] topo.h has 10 to 22",
    "link memory gbs 80 us 0                # from a root complex to the host's memory",
    "link eth10 gbs 1.1 us 14               # .88 of the line, as of EDR in table I [fit]",
    "link eth25 gbs 2.75 us 14",
    "link eth100 gbs 11 us 14",
    "link ib-edr gbs 11 us 14",
    "link ib-hdr gbs 22 us 14",
    "link ib-ndr gbs 44 us 14",

    /* Machines as one buys them: any GPU may be put in. */
    "machine pc-pcie3 gpus 8",
    "  join gpu0-7 root pcie3", "  join root host memory",
    "machine pc-pcie4 gpus 8",
    "  join gpu0-7 root pcie4", "  join root host memory",
    "machine pc-pcie3-2roots gpus 8",
    "  join gpu0-3 root0 pcie3", "  join gpu4-7 root1 pcie3", "  join root0 root1 socket",
    "  join root0 host memory", "  join root1 host memory",
    "machine pc-pcie4-2roots gpus 8",
    "  join gpu0-3 root0 pcie4", "  join gpu4-7 root1 pcie4", "  join root0 root1 socket",
    "  join root0 host memory", "  join root1 host memory",
    "machine nvlink-pair gpus 2",
    "  join gpu0 gpu1 bridge", "  join gpu0-1 root pcie3", "  join root host memory",
    /* 4 GPUs, each joined with each by NVLink, as in a p3.8xlarge or a DGX Station */
    "machine nvlink-4 gpus 4",
    "  join gpu0 gpu1 nvlink2x2", "  join gpu0 gpu2 nvlink2x2", "  join gpu0 gpu3 nvlink2x2",
    "  join gpu1 gpu2 nvlink2x2", "  join gpu1 gpu3 nvlink2x2", "  join gpu2 gpu3 nvlink2x2",
    "  join gpu0-3 root pcie3", "  join root host memory",
    /* The hybrid cube mesh, as `nvidia-smi topo -m` shows it on a DGX-1V; allreduce: nccl-tests. */
    "machine dgx1 gpus 8 network ib-edr cards 4 sum 120",
    "  join gpu0 gpu1 nvlink2x1", "  join gpu0 gpu2 nvlink2x1", "  join gpu0 gpu3 nvlink2x2",
    "  join gpu0 gpu4 nvlink2x2", "  join gpu1 gpu2 nvlink2x2", "  join gpu1 gpu3 nvlink2x1",
    "  join gpu1 gpu5 nvlink2x2", "  join gpu2 gpu3 nvlink2x2", "  join gpu2 gpu6 nvlink2x1",
    "  join gpu3 gpu7 nvlink2x1", "  join gpu4 gpu5 nvlink2x1", "  join gpu4 gpu6 nvlink2x1",
    "  join gpu4 gpu7 nvlink2x2", "  join gpu5 gpu6 nvlink2x2", "  join gpu5 gpu7 nvlink2x1",
    "  join gpu6 gpu7 nvlink2x2",
    "  join gpu0-3 root0 pcie3", "  join gpu4-7 root1 pcie3", "  join root0 root1 socket",
    "  join root0 host memory", "  join root1 host memory",
    "machine dgx-a100 gpus 8 network ib-hdr cards 8",
    "  join gpu0-7 nvswitch nvlink3", "  join gpu0-7 root pcie4", "  join root host memory",
    "machine dgx-h100 gpus 8 network ib-ndr cards 8",
    "  join gpu0-7 nvswitch nvlink4", "  join gpu0-7 root pcie5", "  join root host memory",
    "machine dgx-b200 gpus 8 network ib-ndr cards 8",
    "  join gpu0-7 nvswitch nvlink5", "  join gpu0-7 root pcie5", "  join root host memory",

    /* Machines of published measurements: clock/validation.c. Their numbers are those of one GPU,
     * one software and one machine. */
    "machine pc-1080ti like pc-pcie3 fitted 1 gpu gtx1080ti gpus 1",
    "machine pc-titan-v like pc-pcie3 fitted 1 gpu titan-v gpus 1",
    "machine pc-2080ti like pc-pcie3 gpu rtx2080ti gpus 1",
    "machine dgx-a100-2020 like dgx-a100 fitted 1 gpu a100-40 forward 48.9 backward 108"
    " replicate 52.5 pageable 2.4 scale 0.78 links 1.27",
    "machine titan-rtx-x4 like pc-pcie3 gpus 4 fitted 1 gpu titan-rtx forward 60 backward 180"
    " replicate 42.8 pageable 1.43 scale 1.16 links 0.921",
    "machine titan-xp-x4 like pc-pcie3 gpus 4 fitted 1 gpu titan-xp forward 60.1 backward 132"
    " replicate 15.4 pageable 0.796 scale 1.1 links 0.887",
    "machine 2080ti-x4 like pc-pcie3 gpus 4 fitted 1 gpu rtx2080ti forward 24.7 backward 54.3"
    " replicate 50.9 pageable 1.46 scale 0.928 links 0.714",
    "machine dgx1-2019 like dgx1 fitted 1 gpu v100 scale 1.12 exposed 0.058",
    "machine dgx-station like nvlink-4 fitted 1 gpu v100 forward 40.4 replicate 21.9 scale 0.801"
    " pageable 25.1",
    "machine v100-edr like dgx1 fitted 1 gpu v100 cards 1 scale 1.1 exposed 0.13",
    /* no peer-to-peer: NCCL goes through the host's memory, 2.2 GB/s measured */
    "machine 4090-x4 gpus 4 fitted 1 gpu rtx4090 sum 2.2 scale 1.39 exposed 0.685",
    "  join gpu0-1 root0 pcie4", "  join gpu2-3 root1 pcie4", "  join root0 root1 socket",
    "  join root0 host memory", "  join root1 host memory",
    /* table J: only the GPU is known of these */
    "machine lambda-v100 like dgx1 gpu v100", "machine lambda-3090 like pc-pcie4 gpu rtx3090",
    "machine lambda-4090 like pc-pcie4 gpu rtx4090", "machine lambda-a6000 like pc-pcie4 gpu a6000",
    "machine lambda-a100 like dgx-a100 gpu a100-80", "machine lambda-h100 like dgx-h100 gpu h100",
    "machine lambda-b200 like dgx-b200 gpu b200",
    "machine lambda-a10 like pc-pcie4 gpu a10", "machine lambda-a100-40 like pc-pcie4 gpu a100-40",
    "machine lambda-a100-pcie like pc-pcie4 gpu a100-80-pcie",
    "machine lambda-6000-ada like pc-pcie4 gpu rtx6000-ada",
    "machine lambda-rtx8000 like pc-pcie3 gpu rtx8000",
    "machine lambda-h100-pcie gpus 8 gpu h100-pcie",
    "  join gpu0-3 root0 pcie5", "  join gpu4-7 root1 pcie5", "  join root0 root1 socket",
    "  join root0 host memory", "  join root1 host memory",
    /* tables K, K2, S, T, W, X, Y, Z */
    "machine nvidia-a100-40 like dgx-a100 gpu a100-40",
    "machine one-v100 like pc-pcie3 gpus 1 gpu v100",
    "machine cloud-l4 like pc-pcie4 gpus 1 gpu l4",
    "machine paik-v100 like dgx1 gpu v100", "machine paik-a100 like dgx-a100 gpu a100-80",
    "machine timm-1-3090 like pc-pcie4 gpus 1 gpu rtx3090",
    "machine timm-1-4090 like pc-pcie4 gpus 1 gpu rtx4090",
    "machine timm-1-5090 like pc-pcie4 gpus 1 gpu rtx5090",
    "machine p3-8xlarge like nvlink-4 gpu v100",
    "machine nvidia-a100 like dgx-a100 gpu a100-80", "machine nvidia-dgx1 like dgx1 gpu v100",
    "machine timm-3090 like pc-pcie4 gpus 1 fitted 1 gpu rtx3090 scale 0.71",
    "machine titan-rtx-nvlink like nvlink-pair fitted 1 gpu titan-rtx sum 18.8 exposed 0.403",
    "machine titan-rtx-host like pc-pcie3 gpus 2 fitted 1 gpu titan-rtx sum 4.61 exposed 0.784",
    NULL,
};
// clang-format on

const char *hardware_line(int i) {
    return table[i];
}
