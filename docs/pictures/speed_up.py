#!/usr/bin/env python3
"""Draws what `duet lesson` prints, speed-up by GPUs: docs/pictures/speed_up.py DUET

Writes speed_up.svg beside this file: 16:9, for a projector. The columns of PCIe are drawn.
"""
import os
import subprocess
import sys

WIDTH, HEIGHT, TOP, FOOT, LEFT, PANEL, GAP = 1280, 720, 190, 590, 90, 190, 205
MOST = 4
DP, DDP, QUIET, INK = "#d55e00", "#0072b2", "#6b7480", "#1b1f24"
SAID = ["both lose, DP most", "both gain, DDP more", "DP loses on 2, gains little on 4"]


def speed_ups():
    """model -> [(GPUs, DP, DDP)], and model -> its batch in words."""
    out = subprocess.check_output([sys.argv[1], "lesson"], text=True)
    models, batch = {}, {}
    for line in out.splitlines():
        words = line.split()
        if line.endswith("on one GPU"):
            models[words[0]], batch[words[0]] = [(1, 1.0, 1.0)], f"{words[2]} samples in all"
        elif words and words[0] in models:
            models[words[0]].append((int(words[1]), float(words[7][:-1]), float(words[8][:-1])))
            if not batch[words[0]].startswith(f"{words[2]} "):
                batch[words[0]] = batch[words[0]].replace("in all", "per GPU")
    return models, batch


def text(x, y, words, size=22, anchor="start", fill=INK, weight="normal"):
    return (f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{fill}" font-weight="{weight}">{words}</text>')


def line(points, colour, thickness=6, dashes=""):
    where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (f'<polyline points="{where}" fill="none" stroke="{colour}" stroke-width="{thickness}" '
            f'stroke-linejoin="round"{dashes}/>')


def panel(left, model, batch, rows, said):
    x = {1: left, 2: left + PANEL / 3, 4: left + PANEL}

    def y(value):
        return FOOT - value / MOST * (FOOT - TOP)

    head = f"{model}, {batch.replace('samples ', '')}"
    parts = [text(left - 10, 122, head, 28, weight="bold"), text(left - 10, 152, said, 20)]
    for mark in range(MOST + 1):
        parts += [line([(left, y(mark)), (x[4], y(mark))], "#d5dae0", 1),
                  text(left - 14, y(mark) + 7, f"{mark}x", 20, "end", QUIET)]
    for gpus in x:
        parts.append(text(x[gpus], FOOT + 32, str(gpus), 20, "middle", QUIET))
    parts += [text((x[1] + x[4]) / 2, FOOT + 62, f"GPUs; {batch}", 20, "middle", QUIET),
              line([(x[1], y(1)), (x[4], y(4))], QUIET, 2, ' stroke-dasharray="6 6"')]
    for column, name, colour in ((1, "DP", DP), (2, "DDP", DDP)):
        points = [(x[row[0]], y(row[column])) for row in rows]
        parts.append(line(points, colour))
        parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="8" fill="{colour}"/>'
                  for px, py in points]
        parts.append(text(x[4] + 16, y(rows[-1][column]) + 8, f"{name} {rows[-1][column]:.2f}x",
                          22, "start", colour, "bold"))
    return parts


def main():
    models, batch = speed_ups()
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
             'font-family="DejaVu Sans, Arial, sans-serif" role="img">',
             '<title>Speed-up over one GPU by number of GPUs</title>',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
             text(LEFT - 10, 62, "Speed-up over one V100, by number of GPUs on PCIe 3", 34,
                  weight="bold"),
             text(LEFT - 10, HEIGHT - 20, "modelled by `duet lesson`, +-50 %, measured on no GPU; "
                  "dashed: perfect scaling", 20, fill=QUIET)]
    for i, (model, rows) in enumerate(models.items()):
        parts += panel(LEFT + i * (PANEL + GAP), model, batch[model], rows, SAID[i])
    with open(os.path.join(os.path.dirname(__file__), "speed_up.svg"), "w") as file:
        file.write("\n".join(parts) + "\n</svg>\n")


main()
