#!/usr/bin/env python3
"""Takes the pictures of a page of --report: docs/pictures/screenshots.py PAGE.html

Writes page_light.png, page_dark.png (a wide window) and phone_light.png, phone_dark.png beside this
file. Needs Chromium.
"""
import os
import sys

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, "..", "..", "tests", "report"))
import browser  # noqa: E402

SHOTS = [("page", 1280, 1130, "verdict"), ("phone", 390, 800, "memory")]

with browser.Browser() as driver:
    for name, width, height, section in SHOTS:
        for theme in ("light", "dark"):
            page = driver.open("file://" + os.path.abspath(sys.argv[1]), width, height, theme)
            page.evaluate(f"document.getElementById('{section}').scrollIntoView(); "
                          "window.scrollBy(0, -70);"
                          "new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
            page.screenshot(os.path.join(here, f"{name}_{theme}.png"), whole=False)
            page.close()
