"use strict";
// Reads the traffic matrix link by link: rest on a cell, tap it, or go there with the arrow keys.
// So each link has its own number, however many devices there are and however small the squares.

class TrafficReader {
  // data: {steps, rows}; a row: how many neighbouring links, and the bytes of each, in turn.
  constructor(figure, data) {
    this.steps = data.steps;
    this.bytes = data.rows.map((row) => {
      const links = [];
      for (let i = 0; i < row.length; i += 2)
        for (let k = 0; k < row[i]; k++) links.push(row[i + 1]);
      return links;
    });
    this.from = this.to = -1;
    this.said = document.createElement("p");
    this.said.className = "said";
    this.said.setAttribute("aria-live", "polite");
    this.said.textContent = "Rest on a cell or tap it, or choose one with the arrow keys, to " +
      "read a link.";
    figure.querySelector("figcaption").before(this.said);
    this.pictures = [...figure.querySelectorAll("svg")];
    for (const svg of this.pictures) this.listen(svg);
  }

  listen(svg) {
    svg.setAttribute("tabindex", 0);
    svg.setAttribute("role", "application");
    svg.setAttribute("aria-label", `${svg.getAttribute("aria-label")} The arrow keys go from ` +
      "link to link.");
    const point = (event) => {
      const box = svg.querySelector(".area").getBoundingClientRect(), n = this.bytes.length;
      this.choose(Math.floor((event.clientY - box.top) / box.height * n),
        Math.floor((event.clientX - box.left) / box.width * n));
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("keydown", (event) => {
      const by = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]};
      if (!by[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      const last = this.bytes.length - 1, into = (at) => Math.max(0, Math.min(last, at));
      this.choose(into(this.from + by[event.key][0]), into(this.to + by[event.key][1]));
    });
  }

  choose(from, to) {
    const last = this.bytes.length - 1;
    if (from < 0 || to < 0 || from > last || to > last) return;
    if (from === this.from && to === this.to) return;
    this.from = from;
    this.to = to;
    this.say();
    for (const svg of this.pictures) {
      const area = svg.querySelector(".area"), cell = area.getAttribute("width") / (last + 1);
      svg.querySelector(".chosen")?.remove();
      svgElement("rect", {class: "chosen", x: +area.getAttribute("x") + to * cell,
        y: +area.getAttribute("y") + from * cell, width: cell, height: cell}, svg);
    }
  }

  say() {
    const name = (end) => end === this.bytes.length - 1 ? "host" : `device ${end}`;
    const bytes = this.bytes[this.from][this.to], link = document.createElement("b");
    link.textContent = `${name(this.from)} to ${name(this.to)}`;
    const steps = this.steps === 1 ? "1 step" : `${this.steps} steps`;
    this.said.replaceChildren(link, this.from === this.to ? ": no link" : !bytes ? ": nothing"
      : `: ${byteWords(bytes / this.steps)} a step; ${bytes} bytes in ${steps}`);
  }
}
