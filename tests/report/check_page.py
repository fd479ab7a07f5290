#!/usr/bin/env python3
"""Opens pages of --report in a headless Chromium, as people would use them.

    tests/report/check_page.py [--json FILE PAGE] PAGE...

Each PAGE must load without a network and without a message on the console, must not overflow at 390
and 1600 pixels in either theme, and must have every section, a text for every picture and a caption
for every figure. The PAGE behind --json is that of a `duet compare` over several devices: its
controls are worked by mouse and by keyboard, its numbers are compared with the JSON of the same
run, and it is opened once without JavaScript. Prints what is wrong, and ends with 1 if anything is;
77: there is no browser.
"""
import json
import math
import os
import sys
import time

import browser

SECTIONS = ["verdict", "timelines", "memory", "traffic", "phases", "curves", "equality",
            "collective", "buckets", "about"]
WIDTHS = [(390, 844), (1600, 1000)]
wrong = []


def expect(good, what):
    if not good:
        wrong.append(what)


def look(driver, path):
    """What must hold for every page."""
    for theme in ("light", "dark"):
        page = driver.open("file://" + os.path.abspath(path), *WIDTHS[0], theme)
        name = f"{path}, {theme}"
        for width, height in WIDTHS:
            page.size(width, height)
            # observers of the size draw anew in the next frame
            page.evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
            wide = page.evaluate("document.documentElement.scrollWidth")
            expect(wide <= width, f"{name}: {wide} pixels wide in a window of {width}")
        sections = page.evaluate("[...document.querySelectorAll('main > section')].map(s => s.id)")
        expect(sections == SECTIONS, f"{name}: sections {sections}")
        empty = page.evaluate(
            "[...document.querySelectorAll('main > section')].filter("
            "s => !s.querySelector('h2').textContent || s.children.length < 2).map(s => s.id)")
        expect(not empty, f"{name}: nothing in {empty}")
        silent = page.evaluate(
            "[...document.querySelectorAll('figure > svg')].filter("
            "s => !s.getAttribute('aria-label'))"
            ".length + [...document.querySelectorAll('figure')].filter("
            "f => !f.querySelector('figcaption')?.textContent).length")
        expect(silent == 0, f"{name}: {silent} pictures without text")
        foreign = [u for u in page.requests if not u.startswith(("file://", "data:"))]
        expect(not foreign and len([u for u in page.requests if u.startswith("file:")]) == 1,
               f"{name}: asked for {page.requests}")
        expect(not page.problems, f"{name}: console: {page.problems}")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        expect((sum(map(int, dark[4:-1].split(","))) < 200) == (theme == "dark"),
               f"{name}: the paper is {dark}")
        page.close()
    on_paper(driver, path)
    expect(os.path.getsize(path) < 2e6, f"{path}: {os.path.getsize(path)} bytes")


PAPER = 718  # pixels across a sheet of A4 within a browser's margins


def on_paper(driver, path):
    """Printed from the dark theme: light, nothing to press, nothing cut, also of opened tables."""
    page = driver.open("file://" + os.path.abspath(path), PAPER, 1000, "dark")
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.theme("dark", media="print")
    shown = page.evaluate(
        "[...document.querySelectorAll('button, input, nav, summary, figure > svg')].filter("
        "e => e.checkVisibility()).map(e => e.getAttribute('class') || e.tagName)")
    expect(shown and all(name.endswith(" wide") for name in shown), f"{path}, printed: {shown}")
    figures = page.evaluate("document.querySelectorAll('figure').length")
    expect(len(shown) == figures, f"{path}, printed: {len(shown)} pictures in {figures} figures")
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true })")
    wide = page.evaluate("document.documentElement.scrollWidth")
    expect(wide <= PAPER, f"{path}, printed: {wide} pixels wide on {PAPER}")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    expect(sum(map(int, paper[4:-1].split(","))) > 700, f"{path}, printed: the paper is {paper}")
    page.close()


def at(root, path):
    for key in path.split("."):
        root = root[int(key)] if isinstance(root, list) else root[key]
    return root


def compare_numbers(page, results):
    """Every number that names its place in the JSON is the one that stands there."""
    cells = page.evaluate(
        "[...document.querySelectorAll('data')].map("
        "d => [d.getAttribute('value'), d.dataset.json, 'mean' in d.dataset, d.textContent])")
    expect(len(cells) > 300, f"only {len(cells)} numbers")
    for value, path, mean, text in cells:
        run = results["runs"][int(path.split(".")[1])]
        want = at(results, path) / (run["steps"] if mean else 1)
        expect(math.isclose(float(value), want, rel_tol=1e-15), f"{path}: {value}, JSON {want}")
        expect(text, f"{path}: is not shown")
        shown = text.split()[0]
        if not path.endswith("ns") and "phase_ns" not in path and shown.replace(".", "").isdigit():
            unit = {"ms": 1e3, "\u00b5s": 1e6, "KiB": 2**-10, "MiB": 2**-20,
                    "GiB": 2**-30}.get(text.split()[-1], 1)
            expect(abs(float(shown) - want * unit) <= 0.006 * abs(want * unit) + 1e-9,
                   f"{path}: shown as {text}, JSON {want}")
    seen = {path for _, path, _, _ in cells}
    for i, run in enumerate(results["runs"]):
        for d, device in enumerate(run["per_device"]):
            for cause in device["memory_at_peak_by_cause"]:
                path = f"runs.{i}.per_device.{d}.memory_at_peak_by_cause.{cause}"
                expect(path in seen, f"{path} is not on the page")
        for k in range(len(run["traffic"])):
            expect(f"runs.{i}.traffic.{k}.bytes" in seen, f"traffic {k} of run {i} is missing")


def whole_numbers(text):
    """Base64 VLQ, as source maps have it."""
    digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    numbers, value, shift = [], 0, 0
    for piece in map(digits.index, text):
        value |= (piece & 31) << shift
        shift += 5
        if piece < 32:
            numbers.append(-(value >> 1) if value & 1 else value >> 1)
            value = shift = 0
    return numbers


def read_spans(page, path):
    """JavaScript reads the spans that were written, and they lie in their window."""
    data = json.loads(page.evaluate("document.getElementById('data').textContent"))
    for run in data["runs"]:
        for lane in run["lanes"]:
            want = whole_numbers(lane["spans"])
            got = page.evaluate(f"wholeNumbers('{lane['spans']}')")
            end = sum(want[0::5]) + sum(want[1::5])
            expect(got == want and len(want) % 5 == 0 and 0 < end <= data["axis_ns"],
                   f"{path}: {run['title']}, lane {lane['device']}.{lane['row']}: ends at {end}")
    lanes = sum(len(run["lanes"]) for run in data["runs"])
    areas = page.evaluate("document.querySelectorAll('#timeline .wide .area').length")
    expect(lanes == areas, f"{path}: {lanes} lanes of data, {areas} drawn")


def said(page, figure):
    return page.evaluate(f"document.querySelector('#{figure} .said').textContent")


def work_timeline(page):
    part = "document.querySelector('#timeline .wide .stretch').getAttribute('viewBox')"
    button = "#timeline .tools button:nth-child(%d)"
    whole = page.evaluate(part)
    page.click(button % 1)
    zoomed = page.evaluate(part)
    expect(float(zoomed.split()[2]) == float(whole.split()[2]) / 2, f"+ does not zoom: {zoomed}")
    page.click(button % 4)
    expect(page.evaluate(part) != zoomed, "later does not pan")
    page.click(button % 5)
    expect(page.evaluate(part) == whole, "all does not show all")
    # by keyboard
    page.evaluate("document.querySelector('#timeline .wide').focus()")
    page.key("ArrowRight")
    one = said(page, "timeline")
    page.key("ArrowRight")
    expect("device 0" in one and said(page, "timeline") != one, f"arrows do not move: {one}")
    marked = page.evaluate("document.querySelectorAll('#timeline .wide .chosen').length")
    expect(marked == 1, f"{marked} spans are marked")
    for _ in range(3):  # over the copies and the communication of the first device
        page.key("ArrowDown")
    expect("DP, device" in said(page, "timeline"), f"down: {said(page, 'timeline')}")
    page.key("+")
    expect(page.evaluate(part) != whole, "the key + does not zoom")
    shifted = page.evaluate(part)
    page.key("ArrowRight", modifiers=8)
    expect(page.evaluate(part) != shifted, "Shift and an arrow do not pan")
    page.key("0")
    expect(page.evaluate(part) == whole, "the key 0 does not show all")
    # by mouse: rest on a box, drag
    x, y = page.place("#timeline .wide .area")
    page.mouse("mouseMoved", x, y)
    expect("single, device 0" in said(page, "timeline"), f"hover: {said(page, 'timeline')}")
    page.click(button % 1)
    before = page.evaluate(part)
    x, y = page.place("#timeline .wide")
    page.mouse("mousePressed", x, y, button="left", clickCount=1)
    for k in range(1, 6):
        page.mouse("mouseMoved", x - 30 * k, y, button="left", buttons=1)
    page.mouse("mouseReleased", x - 150, y, button="left", clickCount=1)
    expect(page.evaluate(part) != before, "dragging does not pan")


def work_strip(page, figure, frames, first, last):
    """The frames of a strip, one after another, by buttons, slider and clock."""
    button = f"#{figure} .tools button:nth-child(%d)"
    shown = f"document.querySelector('#{figure} .wide').getAttribute('viewBox')"
    slider = f"+document.querySelector('#{figure} input').value"
    drawn = page.evaluate(f"document.querySelectorAll('#{figure} .wide .frame').length")
    expect(drawn == frames, f"{figure}: {drawn} frames, not {frames}")
    whole = page.evaluate(shown)
    page.click(button % 3)
    expect(page.evaluate(shown) != whole, f"{figure}: step shows no frame alone")
    page.click(button % 3)
    expect(page.evaluate(slider) == 1 and first in said(page, figure), said(page, figure))
    page.click(button % 2)
    expect(page.evaluate(slider) == 0, "back")
    page.evaluate(f"document.querySelector('#{figure} input').focus()")
    for _ in range(frames):
        page.key("ArrowRight")
    expect(page.evaluate(slider) == frames - 1 and last in said(page, figure), said(page, figure))
    page.evaluate(f"document.querySelector('{button % 1}').focus()")
    page.key("Enter")
    playing = f"document.querySelector('{button % 1}').textContent"
    expect(page.evaluate(playing) == "pause" and page.evaluate(slider) == 0, "play")
    until = time.monotonic() + 10
    while page.evaluate(slider) == 0 and time.monotonic() < until:
        time.sleep(0.05)
    expect(page.evaluate(slider) >= 1, "play does not go on")
    page.key("Enter")
    expect(page.evaluate(playing) == "play", "pause")
    page.click(f"#{figure} .tools button:last-child")
    expect(page.evaluate(shown) == whole, f"{figure}: all does not show all")


def work_strips(page, results):
    ranks = results["runs"][-1]["devices"]
    expect(results["runs"][-1]["bucket_algorithms"] == ["ring"], "not a ring")
    work_strip(page, "playback", 2 * ranks - 1, "Hop 1 of", f"Hop {2 * ranks - 2} of")
    dp = results["runs"][1]
    names = ["scatter", "replicate", "gather", "scatter_grad", "reduce"]
    bytes_of = [dp["per_device"][0]["phase_bytes"][name] for name in names]
    expect(min(bytes_of) > 0, f"DP moves {bytes_of}")
    work_strip(page, "moves-1", 10, "part 3 from device 0 to 3", "reduce: the gradients.")


def work_theme(page):
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.click("#theme")
    expect(page.evaluate(paper) != light, "the button does not change the theme")
    page.key("Enter")
    expect(page.evaluate(paper) == light, "nor does Enter change it back")


def without_javascript(driver, path):
    page = driver.open("file://" + os.path.abspath(path), 1600, 1000, javascript=False)
    data = page.call("Page.captureSnapshot", format="mhtml")["data"]
    expect(data.count("<svg") >= 16, "without JavaScript there are no pictures")
    page.close()


def main():
    words = sys.argv[1:]
    if not browser.find():
        sys.exit(77)
    with browser.Browser() as driver:
        if words[0] == "--json":
            with open(words[1], encoding="utf-8") as file:
                results = json.load(file)
            words = words[2:]
            page = driver.open("file://" + os.path.abspath(words[0]))
            compare_numbers(page, results)
            read_spans(page, words[0])
            work_timeline(page)
            work_strips(page, results)
            work_theme(page)
            images = page.evaluate("document.querySelectorAll('img, main a').length")
            expect(images == 0, "a name on the page became an element")
            expect(not page.problems, f"console: {page.problems}")
            page.close()
            without_javascript(driver, words[0])
        for path in words:
            look(driver, path)
    for line in wrong[:20]:
        print(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
