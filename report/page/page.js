"use strict";
// What the page can do beyond showing: it stretches the timeline, says what is pointed at, plays
// the frames of collectives one after another, and changes the theme. Pictures are drawn in C.

const make = (name, attributes, parent) => {
  const element = Object.assign(document.createElement(name), attributes);
  parent?.append(element);
  return element;
};
const button = (parent, text, label, action) => {
  const made = make("button", {type: "button", textContent: text, title: label, ariaLabel: label},
    parent);
  made.addEventListener("click", action);
  return made;
};
// A line of text above the figure's pictures, and what is pressed to work them.
const addControls = (figure, text) => {
  const tools = make("div", {className: "tools"});
  const said = make("p", {className: "said", textContent: text, ariaLive: "polite"});
  figure.prepend(tools, said);
  return [tools, said, [...figure.querySelectorAll(":scope > svg")]];
};
const onKeys = (element, keys) => {
  Object.assign(element, {tabIndex: 0, role: "application"});
  element.addEventListener("keydown", (event) => {
    const action = keys[event.shiftKey ? `Shift${event.key}` : event.key] ?? keys[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  });
};
// Marks a part of a picture, in that picture's own units.
const mark = (svg, x, y, width, height) => {
  svg.querySelector(".chosen")?.remove();
  const box = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  Object.entries({class: "chosen", x, y, width, height})
    .forEach(([key, value]) => box.setAttribute(key, value));
  svg.append(box);
};
const boxOf = (area) => ["x", "y", "width", "height"].map((key) => +area.getAttribute(key));
const clamp = (value, least, most) => Math.max(least, Math.min(most, value));
const inUnits = (value, base, digits, units) => {
  let unit = 0;
  for (; value >= 999.5 && unit < units.length - 1; unit++) value /= base;
  return `${+value.toPrecision(digits)} ${units[unit]}`;
};
const timeWords = (ns) => inUnits(ns, 1000, 4, ["ns", "\u00b5s", "ms", "s"]);
const byteWords = (bytes) => inUnits(bytes, 1024, 3, ["B", "KiB", "MiB", "GiB", "TiB"]);
// The whole numbers of a text: see data.h.
const wholeNumbers = (text) => {
  const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", numbers = [];
  let value = 0, scale = 1;
  for (const piece of [...text].map((digit) => digits.indexOf(digit))) {
    value += piece % 32 * scale;
    scale *= 32;
    if (piece > 31) continue;
    numbers.push(value % 2 ? -(value - 1) / 2 : value / 2);
    [value, scale] = [0, 1];
  }
  return numbers;
};

// The timeline: from and to are the part of the axis that is shown, as shares of it.
const workTimeline = (figure, data) => {
  const hint = "Rest on a box or tap it, or choose one with the arrow keys, to see what it is. " +
    "Ctrl and the wheel, or + and \u2212 stretch the axis, down to single kernels.";
  const [tools, said, pictures] = addControls(figure, hint);
  const lanes = data.runs.flatMap((run) => run.lanes.map((lane) => {
    const numbers = wholeNumbers(lane.spans), spans = [];
    for (let i = 0, end = 0; i < numbers.length; i += 5) {
      const [gap, length, kind, less, bytes] = numbers.slice(i, i + 5), start = end + gap;
      const [phase, waiting, name] = data.kinds[kind];
      end = start + length;
      spans.push({start, end, length, phase, waiting, name, cpu: length - less, bytes});
    }
    return {run, device: lane.device, row: lane.row, spans};
  }));
  let from = 0, to = 1, at = -1, index = 0;
  const show = (left, right) => {
    const length = clamp(right - left, Math.min(1, 1000 / data.axis_ns), 1);
    from = clamp(left, 0, 1 - length);
    to = from + length;
    for (const svg of pictures) {
      const part = svg.querySelector(".stretch"), [x, y, width, height] = boxOf(part);
      part.setAttribute("viewBox", `${x + from * width} ${y} ${length * width} ${height}`);
      part.classList.toggle("stretched", length < 1);
      for (const text of part.querySelectorAll("text")) { // which keeps its shape
        const place = text.getAttribute("x");
        text.setAttribute("transform",
          `translate(${place}) scale(${length} 1) translate(${-place})`);
      }
    }
  };
  const zoom = (factor, around = (from + to) / 2) =>
    show(around - (around - from) * factor, around + (to - around) * factor);
  const pan = (share) => show(from + share * (to - from), to + share * (to - from));
  const choose = (lane, span) => {
    [at, index] = [lane, span];
    const {run, device, row, spans} = lanes[lane], s = spans[span];
    const parts = [`${timeWords(s.length)}, from ${timeWords(s.start)} on`];
    if (s.cpu) parts.push(`CPU time ${timeWords(s.cpu)}`);
    if (s.bytes) parts.push(byteWords(s.bytes));
    said.replaceChildren(make("b", {textContent: `${s.waiting ? "waiting: " : ""}${s.name}`}),
      ` \u2013 ${data.phases[s.phase]}, ${run.title}, device ${device}, ` +
      `${["compute", "communication", "copy"][row]}: ${parts.join("; ")}`);
    for (const svg of pictures) {
      const part = svg.querySelector(".stretch");
      const [x, y, width, height] = boxOf(part.querySelectorAll(".area")[lane]);
      mark(part, x + s.start / data.axis_ns * width, y, s.length / data.axis_ns * width, height);
    }
  };
  // The span nearest to a time in that lane.
  const nearest = (lane, ns) => lanes[lane].spans.reduce((best, s, i, all) => {
    const far = (one) => Math.max(one.start - ns, ns - one.end, 0);
    return far(s) < far(all[best]) ? i : best;
  }, 0);
  const go = (by, down) => {
    const s = lanes[Math.max(0, at)].spans[index], lane = clamp(at + down, 0, lanes.length - 1);
    choose(lane, at < 0 || down ? nearest(lane, (s.start + s.end) / 2)
      : clamp(index + by, 0, lanes[at].spans.length - 1));
    const now = lanes[at].spans[index], middle = (now.start + now.end) / 2 / data.axis_ns;
    if (middle < from || middle > to) pan((middle - (from + to) / 2) / (to - from));
  };
  for (const svg of pictures) {
    const part = svg.querySelector(".stretch"), areas = [...part.querySelectorAll(".area")];
    const share = (event) => { // of the axis, where the pointer is
      const box = areas[0].getBoundingClientRect();
      return (event.clientX - box.left) / box.width;
    };
    let held = null;
    svg.addEventListener("pointerdown", (event) => { held = event.clientX; });
    for (const name of ["pointerup", "pointerleave", "pointercancel"])
      svg.addEventListener(name, () => { held = null; });
    for (const name of ["pointermove", "pointerdown"])
      svg.addEventListener(name, (event) => {
        const lane = areas.indexOf(event.target);
        if (lane >= 0) choose(lane, nearest(lane, share(event) * data.axis_ns));
        if (held === null || name === "pointerdown") return;
        pan((held - event.clientX) / areas[0].getBoundingClientRect().width / (to - from));
        held = event.clientX;
      });
    svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, share(event));
    }, {passive: false});
    onKeys(svg, {"+": () => zoom(0.5), "-": () => zoom(2), "0": () => show(0, 1),
      ShiftArrowLeft: () => pan(-0.25), ShiftArrowRight: () => pan(0.25),
      ArrowLeft: () => go(-1, 0), ArrowRight: () => go(1, 0),
      ArrowUp: () => go(0, -1), ArrowDown: () => go(0, 1)});
  }
  button(tools, "+", "stretch", () => zoom(0.5));
  button(tools, "\u2212", "shrink", () => zoom(2));
  button(tools, "\u2190", "earlier", () => pan(-0.25));
  button(tools, "\u2192", "later", () => pan(0.25));
  button(tools, "all", "show all", () => show(0, 1));
};

// A strip of frames: one of them is shown alone, or all.
const workStrip = (figure) => {
  const [tools, said, pictures] = addControls(figure, "All frames. Play shows one after another.");
  const frames = pictures.map((svg) => [...svg.querySelectorAll(".frame")]);
  const whole = pictures.map((svg) => svg.getAttribute("viewBox")), last = frames[0].length - 1;
  let at = -1, timer;
  const show = (frame) => {
    at = frame;
    figure.classList.toggle("alone", at >= 0);
    pictures.forEach((svg, k) => {
      svg.setAttribute("viewBox", at < 0 ? whole[k] : frames[k][at].dataset.box);
      frames[k].forEach((one, i) => one.classList.toggle("now", i === at));
    });
    said.textContent = at < 0 ? "All frames." : frames[0][at].dataset.said;
    slider.value = Math.max(0, at);
  };
  const pause = () => {
    timer = clearInterval(timer);
    play.textContent = "play";
  };
  const step = (by) => show(clamp(at + by, 0, last), pause());
  const play = button(tools, "play", "play or pause", () => {
    if (timer) return void pause();
    show(at === last ? 0 : Math.max(0, at));
    play.textContent = "pause";
    timer = setInterval(() => at === last ? pause() : show(at + 1), 1800);
  });
  button(tools, "back", "one frame back", () => step(-1));
  button(tools, "step", "one frame forward", () => step(1));
  const slider = make("input", {type: "range", max: last, value: 0, ariaLabel: "frame"}, tools);
  slider.addEventListener("input", () => step(+slider.value - at));
  button(tools, "all", "show all frames", () => show(-1, pause()));
  addEventListener("beforeprint", () => show(-1));
  if (matchMedia("(max-width: 720px)").matches) show(0);
};

{
  const root = document.documentElement, theme = document.getElementById("theme");
  const prefers = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : prefers.matches;
  const label = () => {
    theme.textContent = isDark() ? "light" : "dark";
    theme.ariaLabel = `use the ${theme.textContent} theme`;
  };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  prefers.addEventListener("change", label);
  label();

  const data = JSON.parse(document.getElementById("data").textContent);
  const timeline = document.getElementById("timeline");
  if (timeline && data.runs.length) workTimeline(timeline, data);
  for (const figure of document.querySelectorAll("figure"))
    if (figure.querySelector(".frame")) workStrip(figure);
}
