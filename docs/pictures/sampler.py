#!/usr/bin/env python3
"""Draws which rank takes which sample where ten are shared by three: docs/pictures/sampler.py DUET

The indices are those that `duet sampler` prints. Writes uneven_data.svg beside this file.
"""
import os
import subprocess
import sys

SAMPLES, RANKS = 10, 3
COLOURS = ["#0072b2", "#d55e00", "#009e73"]  # of ranks, as in the pictures of collectives
CELL, GAP, LEFT, TOP = 34, 6, 62, 112


def indices(rank, world, *flags):
    words = [sys.argv[1], "sampler", "--dataset-size", str(SAMPLES), "--world-size", str(world),
             "--rank", str(rank), "--no-shuffle", *flags]
    return [int(line) for line in subprocess.check_output(words, text=True).split()]


def text(x, y, words, size=13, anchor="start", fill="#222", weight="normal"):
    return (f'<text x="{x}" y="{y}" font-size="{size}" text-anchor="{anchor}" fill="{fill}" '
            f'font-weight="{weight}">{words}</text>')


def cell(x, y, words, colour, again=False):
    """A sample; `again`: only outlined, since it was used before or there is none."""
    box = (f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" rx="4" stroke="{colour}" '
           f'stroke-width="2" fill="{"#ffffff" if again else colour}"'
           f'{" stroke-dasharray=" + chr(34) + "4 3" + chr(34) if again else ""}/>')
    return box + text(x + CELL / 2, y + CELL / 2 + 5, words, 14, "middle",
                      colour if again else "#ffffff")


def panel(left, title, below, foot, ranks):
    """ranks: for each its samples; None: it has none in that batch."""
    parts = [text(left, 28, title, 16, weight="bold"), text(left, 48, below, 12, fill="#555")]
    seen = set()
    taken = [[None] * len(row) for row in ranks]
    for step in range(max(map(len, ranks))):  # in the order of the epoch
        parts.append(text(left + LEFT + step * (CELL + GAP) + CELL / 2, TOP - 10, f"{step + 1}", 12,
                          "middle", "#555"))
        for rank, row in enumerate(ranks):
            if step < len(row) and row[step] is not None:
                taken[rank][step] = row[step] in seen
                seen.add(row[step])
    for rank, row in enumerate(ranks):
        y = TOP + rank * (CELL + GAP)
        parts.append(text(left, y + CELL / 2 + 5, f"rank {rank}"))
        for step, sample in enumerate(row):
            x = left + LEFT + step * (CELL + GAP)
            if sample is None:
                parts.append(cell(x, y, "\u2013", "#8a8f98", True))
            else:
                parts.append(cell(x, y, f"{sample}", COLOURS[rank], taken[rank][step]))
    parts.append(text(left, TOP + RANKS * (CELL + GAP) + 22, foot, 12, fill="#555"))
    return parts


def main():
    padded = [indices(r, RANKS) for r in range(RANKS)]
    dropped = [indices(r, RANKS, "--drop-last") for r in range(RANKS)]
    order = indices(0, 1)  # neither padded nor cut
    joined = [order[r::RANKS] for r in range(RANKS)]
    longest = max(map(len, joined))
    joined = [row + [None] * (longest - len(row)) for row in joined]
    unused = sorted(set(order) - {sample for row in dropped for sample in row})
    again = sorted(order[:sum(map(len, padded)) - SAMPLES])
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 290" width="900" '
             'height="290" role="img" aria-labelledby="t d" '
             'font-family="Helvetica, Arial, sans-serif">',
             f'<title id="t">{SAMPLES} samples on {RANKS} ranks</title>',
             '<desc id="d">Padded, each rank has four samples, and samples 0 and 1 come twice. '
             'Dropped, each has three, and sample 9 is not used. With join rank 0 has four, the '
             'others have three and shadow it in the last batch.</desc>',
             '<rect width="900" height="290" fill="#ffffff"/>']
    lines += panel(20, "Padding", "the default: the order goes on from its start",
                   f"samples {again[0]} and {again[1]} come twice (outlined)", padded)
    lines += panel(320, "--drop-last", "the order is cut",
                   f"sample {unused[0]} is not used in this epoch", dropped)
    lines += panel(620, "--join", "neither padded nor cut",
                   "ranks 1 and 2 shadow rank 0 (outlined)", joined)
    lines.append(text(20, 280, "Columns are the samples that a rank takes one after another; rank "
                      "r takes positions r, r + 3, r + 6, ... of the order.", 12, fill="#555"))
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "uneven_data.svg"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines + ["</svg>"]) + "\n")


if __name__ == "__main__":
    main()
