"""A headless Chromium, driven over the DevTools protocol with Python's standard library alone.

The browser reads commands from descriptor 3 and writes answers and events to descriptor 4, each a
JSON text that ends with a zero byte.

    with Browser() as browser:
        page = browser.open("file:///tmp/r.html", width=390, height=844)
        page.evaluate("document.title")
        page.click("#theme")
        page.key("ArrowRight")
        page.screenshot("r.png")
        page.problems            # console errors and exceptions so far
"""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

DEADLINE = 30  # seconds for any answer: a browser that hangs must not hang the tests


def find():
    """The path of a Chromium, or None."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return shutil.which(name)
    return None


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="duet-chromium-")
        to_browser, self.write_fd = os.pipe()
        self.read_fd, from_browser = os.pipe()

        def wire():
            # duplicates first: either descriptor may be 3 or 4 already
            a, b = os.dup(to_browser), os.dup(from_browser)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self.process = subprocess.Popen(
            [find(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
             "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
             "--disable-background-networking", "--disable-component-update",
             "--hide-scrollbars", f"--user-data-dir={self.folder}", "about:blank"],
            preexec_fn=wire, close_fds=False, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.number = 0
        self.listeners = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.write_fd)  # the browser ends with its pipe
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read_fd)
        shutil.rmtree(self.folder, ignore_errors=True)

    def receive(self, until):
        """One message, or None at the time `until`."""
        while b"\0" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.read_fd], [], [], left)[0]:
                return None
            more = os.read(self.read_fd, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        if "method" in message and message.get("sessionId") in self.listeners:
            self.listeners[message["sessionId"]](message)
        return message

    def call(self, method, session=None, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.write_fd, data):]
        until = time.monotonic() + DEADLINE
        while True:
            answer = self.receive(until)
            if answer is None:
                raise RuntimeError(f"{method}: no answer")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]

    def open(self, url, width=1600, height=1000, theme="light", javascript=True):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        return Page(self, session, target, url, width, height, theme, javascript)


class Page:
    def __init__(self, browser, session, target, url, width, height, theme, javascript):
        self.browser, self.session, self.target = browser, session, target
        self.problems, self.requests, self.loaded = [], [], False
        browser.listeners[session] = self.hear
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.size(width, height)
        self.theme(theme)
        if not javascript:
            self.call("Emulation.setScriptExecutionDisabled", value=True)
        started = time.monotonic()
        self.call("Page.navigate", url=url)
        while not self.loaded:
            if browser.receive(started + DEADLINE) is None:
                raise RuntimeError(f"{url}: did not load")
        self.seconds = time.monotonic() - started

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def hear(self, message):
        kind, params = message["method"], message["params"]
        if kind == "Page.loadEventFired":
            self.loaded = True
        elif kind == "Runtime.exceptionThrown":
            self.problems.append(params["exceptionDetails"].get("exception", {})
                                 .get("description", params["exceptionDetails"]["text"]))
        elif kind == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning"):
            self.problems.append(str(params["args"]))
        elif kind == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.problems.append(params["entry"]["text"])
        elif kind == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)

    def theme(self, theme, media=""):
        self.call("Emulation.setEmulatedMedia", media=media, features=[
            {"name": "prefers-color-scheme", "value": theme},
            {"name": "prefers-reduced-motion", "value": "reduce"}])

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"]["exception"]["description"])
        return result["result"].get("value")

    def place(self, selector):
        """The middle of an element, scrolled into view."""
        return self.evaluate(
            "(() => { const e = document.querySelector(%s); e.scrollIntoView({block: 'center'});"
            " const b = e.getBoundingClientRect();"
            " return [b.x + b.width / 2, b.y + b.height / 2] })()" % json.dumps(selector))

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, selector):
        x, y = self.place(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.mouse(kind, x, y, button="left", clickCount=1)

    def key(self, key, modifiers=0):
        codes = {"Enter": (13, "\r"), " ": (32, " "), "Tab": (9, ""), "ArrowLeft": (37, ""),
                 "ArrowUp": (38, ""), "ArrowRight": (39, ""), "ArrowDown": (40, "")}
        code, text = codes.get(key, (ord(key[0]), key if len(key) == 1 else ""))
        more = {"text": text} if text else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code,
                  modifiers=modifiers, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code,
                  modifiers=modifiers)

    def screenshot(self, path, whole=True):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole,
                         **({"clip": self.whole()} if whole else {}))["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def whole(self):
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        return {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}

    def printed(self, path):
        data = self.call("Page.printToPDF", printBackground=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
