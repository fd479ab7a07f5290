"use strict";
// The timeline that can be zoomed: it takes the place of the still picture. Ctrl and the wheel, a
// pinch or the buttons zoom; dragging, the buttons or Shift with an arrow pan; the arrows alone go
// from span to span. Times are in nanoseconds.

const svgElement = (name, attributes, parent) => {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (parent) parent.appendChild(element);
  return element;
};

const timeWords = (ns) => {
  const [value, unit] = ns >= 1e9 ? [ns / 1e9, "s"] : ns >= 1e6 ? [ns / 1e6, "ms"]
    : ns >= 1e3 ? [ns / 1e3, "\u00b5s"] : [ns, "ns"];
  return `${+value.toPrecision(4)} ${unit}`;
};

const byteWords = (bytes) => {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; bytes >= 999.5 && unit < 4; unit++) bytes /= 1024;
  return `${+bytes.toPrecision(3)} ${units[unit]}`;
};

// The whole numbers of a text: see data.h.
const wholeNumbers = (text) => {
  const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", numbers = [];
  let value = 0, scale = 1;
  for (const digit of text) {
    const piece = digits.indexOf(digit);
    value += piece % 32 * scale;
    scale *= 32;
    if (piece > 31) continue;
    numbers.push(value % 2 ? -(value - 1) / 2 : value / 2);
    value = 0;
    scale = 1;
  }
  return numbers;
};

const addButton = (parent, text, label, action) => {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = text;
  button.setAttribute("aria-label", label);
  button.title = label;
  button.addEventListener("click", action);
  parent.appendChild(button);
  return button;
};

class Timeline {
  constructor(figure, data) {
    this.data = data;
    this.from = 0;
    this.to = this.all = data.axis_ns;
    this.chosen = null;
    this.lanes = this.readLanes();
    this.tools = document.createElement("div");
    this.tools.className = "tools";
    this.said = document.createElement("p");
    this.said.className = "said";
    this.said.setAttribute("aria-live", "polite");
    this.key = this.makeKey();
    this.stage = svgElement("svg", {class: "stage", tabindex: 0, role: "application"});
    this.stage.setAttribute("aria-label",
      "Timeline. Left and right go from span to span, up and down from lane to lane, " +
      "plus and minus zoom, Shift with left and right pan, 0 shows all.");
    figure.classList.add("drawn");
    figure.prepend(this.key, this.tools, this.stage, this.said);
    addButton(this.tools, "+", "zoom in", () => this.zoom(0.5));
    addButton(this.tools, "\u2212", "zoom out", () => this.zoom(2));
    addButton(this.tools, "\u2190", "earlier", () => this.pan(-0.25));
    addButton(this.tools, "\u2192", "later", () => this.pan(0.25));
    addButton(this.tools, "all", "show all", () => this.show(0, this.all));
    this.listen();
    new ResizeObserver(() => this.draw()).observe(figure);
    this.hint();
  }

  // Each lane: its run, device, row and spans as objects.
  readLanes() {
    const lanes = [];
    this.data.runs.forEach((run, index) => {
      for (const lane of run.lanes) {
        const spans = [], numbers = wholeNumbers(lane.spans);
        let end = 0;
        for (let i = 0; i < numbers.length; i += 5) {
          const [gap, length, kind, less, bytes] = numbers.slice(i, i + 5);
          const start = end + gap, [phase, waiting, name] = this.data.kinds[kind];
          end = start + length;
          spans.push({start, length, phase, name, waiting, cpu: length - less, bytes});
        }
        lanes.push({run: index, device: lane.device, row: lane.row, spans});
      }
    });
    return lanes;
  }

  // The phases that occur, with their colours.
  makeKey() {
    const key = document.createElement("p"), seen = new Set();
    key.className = "key";
    let waits = false;
    for (const lane of this.lanes)
      for (const span of lane.spans) span.waiting ? waits = true : seen.add(span.phase);
    const add = (css, name) => {
      const item = document.createElement("span"), box = document.createElement("i");
      box.style.background = css;
      if (!css) box.className = "waits";
      item.append(box, name);
      key.append(item);
    };
    this.data.phases.forEach((phase, index) => {
      if (seen.has(index)) add(`var(--${phase.css})`, phase.name);
    });
    if (waits) add("", "waiting");
    return key;
  }

  hint() {
    this.said.textContent = "Rest on a box or tap it, or choose one with the arrow keys, to see " +
      "what it is. Ctrl and the wheel, a pinch, or + and \u2212 zoom, down to single kernels.";
  }

  // ---- the part of the axis that is shown ----

  show(from, to) {
    const least = Math.min(this.all, 1000), length = Math.max(least, Math.min(this.all, to - from));
    this.from = Math.max(0, Math.min(this.all - length, from));
    this.to = this.from + length;
    this.draw();
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    this.show(around - (around - this.from) * factor, around + (this.to - around) * factor);
  }

  pan(share) {
    const by = (this.to - this.from) * share;
    this.show(this.from + by, this.to + by);
  }

  timeAt(event) {
    const box = this.stage.getBoundingClientRect();
    const x = event.clientX - box.left - this.gutter;
    return this.from + Math.max(0, Math.min(1, x / this.width)) * (this.to - this.from);
  }

  // ---- drawing ----

  draw() {
    const total = Math.max(280, this.stage.parentNode.clientWidth), narrow = total < 560;
    const small = Math.max(...this.data.runs.map((run) => run.devices)) > 16;
    const heights = small ? [7, 4, 3] : [20, 14, 6];
    this.gutter = narrow ? 22 : 74;
    this.width = total - this.gutter - 2;
    this.stage.replaceChildren();
    const clip = svgElement("clipPath", {id: "axis-clip"}, this.stage);
    const clipBox = svgElement("rect", {x: this.gutter, y: 0, width: this.width}, clip);
    const back = svgElement("g", {}, this.stage);
    const boxes = svgElement("g", {"clip-path": "url(#axis-clip)"}, this.stage);
    let y = 0;
    this.data.runs.forEach((run, index) => {
      const head = svgElement("text", {x: 0, y: y + 18, class: "ink", "font-weight": "bold",
        "font-size": 14}, back);
      head.textContent = run.title;
      svgElement("text", {x: total - 2, y: y + 18, class: "quiet", "font-size": 12,
        "text-anchor": "end"}, back).textContent = run.steps > 1
        ? `steps ${run.first_step} and ${run.first_step + 1}: ${timeWords(run.length)}`
        : `step ${run.first_step}: ${timeWords(run.length)}`;
      y += 26;
      for (let device = 0; device < run.devices; device++) {
        const top = y;
        if (!small || device % 8 === 0) {
          svgElement("text", {x: this.gutter - 6, y: y + (small ? 9 : 14), class: "quiet",
            "font-size": 12, "text-anchor": "end"}, back).textContent =
            narrow ? device : `device ${device}`;
        }
        for (let row = 0; row < 3; row++) {
          if ((row === 1 && !run.comm) || (row === 2 && !run.copy)) continue;
          const lane = this.lanes.find((one) => one.run === index && one.device === device &&
            one.row === row);
          if (lane) this.drawLane(boxes, lane, y, heights[row], small);
          y += heights[row] + 1;
        }
        svgElement("rect", {x: this.gutter, y: top, width: this.width, height: y - top,
          class: "raised"}, back);
        y += small ? 2 : 6;
      }
    });
    this.drawAxis(back, y);
    clipBox.setAttribute("height", y);
    this.stage.setAttribute("viewBox", `0 0 ${total} ${y + 22}`);
    this.stage.setAttribute("height", y + 22);
  }

  // What is narrower than half a pixel is joined with what follows, so that no view is slow.
  drawLane(parent, lane, y, height, small) {
    const scale = this.width / (this.to - this.from);
    let drawn = -1;
    lane.spans.forEach((span) => {
      const left = (span.start - this.from) * scale, width = span.length * scale;
      if (left + width < 0 || left > this.width || left + width < drawn + 0.4) return;
      drawn = left + width;
      const phase = this.data.phases[span.phase];
      const box = svgElement("rect", {x: this.gutter + left, y, height,
        width: width > 8 ? width - 0.4 : Math.max(0.7, width),
        class: span.waiting ? "s-quiet waits" : phase.css}, parent);
      if (span.waiting) box.setAttribute("stroke-dasharray", "2 2");
      if (span === this.chosen) box.classList.add("chosen");
      box.span = span;
      box.lane = lane;
      const text = span.name;
      const seen = Math.min(width, this.width - left) + Math.min(0, left);
      if (small || height < 13 || text.length * 6.6 > seen - 6) return;
      const label = svgElement("text", {x: this.gutter + Math.max(0, left) + seen / 2,
        y: y + height / 2 + 4, class: span.waiting ? "quiet" : phase.text, "font-size": 11.5,
        "text-anchor": "middle", "pointer-events": "none"}, parent);
      label.textContent = text;
    });
  }

  drawAxis(parent, y) {
    const length = this.to - this.from, least = length / Math.max(2, this.width / 90);
    const power = 10 ** Math.floor(Math.log10(least));
    const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= least);
    const digits = Math.max(0, 6 - Math.floor(Math.log10(step)));
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = this.gutter + (at - this.from) / length * this.width;
      svgElement("line", {x1: x, x2: x, y1: 26, y2: y, class: "s-grid"}, parent);
      const edge = x > this.gutter + this.width - 26;
      svgElement("text", {x, y: y + 15, class: "quiet", "font-size": 12,
        "text-anchor": edge ? "end" : "middle"}, parent).textContent =
        `${(at / 1e6).toFixed(Math.min(digits, 6))}${at < step / 2 ? " ms" : ""}`;
    }
  }

  // ---- one span ----

  choose(lane, span) {
    this.chosen = span;
    const run = this.data.runs[lane.run], phase = this.data.phases[span.phase].name;
    const where = ["compute", "communication", "copy"][lane.row];
    const parts = [`${timeWords(span.length)}, from ${timeWords(span.start)} on`];
    if (span.cpu) parts.push(`CPU time ${timeWords(span.cpu)}`);
    if (span.bytes) parts.push(byteWords(span.bytes));
    const name = document.createElement("b");
    name.textContent = `${span.waiting ? "waiting: " : ""}${span.name}`;
    this.said.replaceChildren(name, ` \u2013 ${phase}, ${run.title}, device ${lane.device}, ` +
      `${where}: ${parts.join("; ")}`);
    for (const box of this.stage.querySelectorAll(".chosen")) box.classList.remove("chosen");
    for (const box of this.stage.querySelectorAll("rect"))
      if (box.span === span) box.classList.add("chosen");
  }

  // The span `by` places further in this lane, or in the lane `down` places below it.
  move(by, down) {
    let at = this.lanes.findIndex((lane) => lane.spans.includes(this.chosen));
    if (at < 0) {
      this.choose(this.lanes[0], this.lanes[0].spans[0]);
      return;
    }
    let lane = this.lanes[at], index = lane.spans.indexOf(this.chosen) + by;
    if (down) {
      at = Math.max(0, Math.min(this.lanes.length - 1, at + down));
      lane = this.lanes[at];
      const later = lane.spans.findIndex((s) => s.start + s.length > this.chosen.start);
      index = later < 0 ? lane.spans.length - 1 : later;
    }
    const span = lane.spans[Math.max(0, Math.min(lane.spans.length - 1, index))];
    const length = this.to - this.from, middle = span.start + span.length / 2;
    if (middle < this.from || middle > this.to) this.show(middle - length / 2, middle + length / 2);
    this.choose(lane, span);
  }

  // ---- mouse, fingers and keys ----

  listen() {
    const fingers = new Map();
    let apart = 0, moved = 0;
    const at = (event) => event.target.span &&
      this.choose(event.target.lane, event.target.span);
    this.stage.addEventListener("pointerdown", (event) => {
      fingers.set(event.pointerId, event);
      moved = 0;
      apart = 0;
      at(event);
    });
    this.stage.addEventListener("pointermove", (event) => {
      const last = fingers.get(event.pointerId);
      if (!last) return at(event);
      fingers.set(event.pointerId, event);
      if (fingers.size === 2) {
        const [a, b] = [...fingers.values()], gap = Math.abs(a.clientX - b.clientX) + 1;
        if (apart) this.zoom(apart / gap, (this.timeAt(a) + this.timeAt(b)) / 2);
        apart = gap;
        return undefined;
      }
      const by = event.clientX - last.clientX;
      moved += Math.abs(by);
      if (moved < 3) return undefined;
      this.stage.classList.add("moving");
      if (!this.stage.hasPointerCapture(event.pointerId))
        this.stage.setPointerCapture(event.pointerId);
      this.pan(-by / this.width);
      return undefined;
    });
    const up = (event) => {
      fingers.delete(event.pointerId);
      this.stage.classList.remove("moving");
    };
    for (const name of ["pointerup", "pointercancel", "pointerleave"])
      this.stage.addEventListener(name, up);
    this.stage.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
      event.preventDefault();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, this.timeAt(event));
    }, {passive: false});
    this.stage.addEventListener("dblclick", (event) => this.zoom(0.5, this.timeAt(event)));
    const keys = {
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2),
      "0": () => this.show(0, this.all), Home: () => this.show(0, this.all),
      ArrowLeft: (event) => event.shiftKey ? this.pan(-0.25) : this.move(-1, 0),
      ArrowRight: (event) => event.shiftKey ? this.pan(0.25) : this.move(1, 0),
      ArrowUp: () => this.move(0, -1), ArrowDown: () => this.move(0, 1),
    };
    this.stage.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key](event);
    });
  }
}
