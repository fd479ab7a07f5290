"use strict";
// The collectives of a step, one after another, played hop by hop: the allreduces of DDP's buckets,
// or what DP moves. Chunks travel from rank to rank, and each cell shows whose terms its chunk
// holds. It takes the place of the strip of still pictures.

const RANK_COLOURS = ["backward", "gather", "loss", "replicate", "allreduce", "forward",
  "optimizer", "input"];
const MANY = 16; // ranks: with more, cells are small and nothing moves

class Playback {
  // collectives: in the order in which they are launched.
  constructor(figure, collectives) {
    this.frames = [];
    for (const data of collectives) {
      const states = this.readStates(data);
      states.forEach((state, hop) => this.frames.push({data, states, hop}));
    }
    this.last = this.frames.length - 1;
    this.at = 0;
    this.timer = 0;
    this.still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.tools = document.createElement("div");
    this.tools.className = "tools";
    this.said = document.createElement("p");
    this.said.className = "said";
    this.said.setAttribute("aria-live", "polite");
    this.stage = svgElement("svg", {class: "stage playback", role: "img"});
    figure.classList.add("drawn");
    figure.prepend(this.tools, this.said, this.stage);
    this.playButton = addButton(this.tools, "play", "play or pause", () => this.playOrPause());
    addButton(this.tools, "back", "one hop back", () => this.step(-1));
    addButton(this.tools, "step", "one hop forward", () => this.step(1));
    this.slider = document.createElement("input");
    Object.assign(this.slider, {type: "range", min: 0, max: this.last, step: 1, value: 0});
    this.slider.setAttribute("aria-label", "hop");
    this.slider.addEventListener("input", () => {
      this.pause();
      this.show(+this.slider.value);
    });
    this.tools.appendChild(this.slider);
    this.tell();
    new ResizeObserver(() => this.draw()).observe(figure); // which draws for the first time, too
  }

  // states[hop][rank][chunk]: the set of ranks whose terms are there, as a BigInt.
  readStates({ranks, chunks, hops}) {
    const states = [];
    let state = Array.from({length: ranks}, () => new Array(chunks).fill(0n));
    for (const hop of hops) {
      state = state.map((row) => row.slice());
      for (let i = 0; i < hop.cells.length; i += 4) {
        const [rank, first, count, terms] = hop.cells.slice(i, i + 4);
        state[rank].fill(BigInt(`0x${terms}`), first, first + count);
      }
      states.push(state);
    }
    return states;
  }

  movesNow() {
    const {data, hop} = this.frames[this.at], list = [], flat = data.hops[hop].moves;
    for (let i = 0; i < flat.length; i += 5) {
      const [from, to, added, first, count] = flat.slice(i, i + 5);
      list.push({from, to, added, first, count});
    }
    return list;
  }

  // ---- play, pause, step ----

  playOrPause() {
    if (this.timer) {
      this.pause();
      return;
    }
    if (this.at === this.last) this.show(0);
    this.playButton.textContent = "pause";
    this.timer = setTimeout(() => this.next(), 500);
  }

  next() {
    if (this.at === this.last) {
      this.pause();
      return;
    }
    this.show(this.at + 1, !this.still);
    this.timer = setTimeout(() => this.next(), 1800);
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.playButton.textContent = "play";
  }

  step(by) {
    this.pause();
    this.show(Math.max(0, Math.min(this.last, this.at + by)), by > 0 && !this.still);
  }

  show(at, moving) {
    this.at = at;
    this.tell();
    this.draw(moving);
  }

  tell() {
    const {data, hop, states} = this.frames[this.at];
    this.slider.value = this.at;
    this.slider.setAttribute("aria-valuetext",
      `${data.title} Hop ${hop} of ${states.length - 1}`);
    this.say();
  }

  // ---- in words ----

  say() {
    const {data} = this.frames[this.at];
    this.said.textContent = `${data.title} ${data.before ? this.sayMove() : this.sayAllreduce()}`;
  }

  sayMove() {
    const {data, hop, states} = this.frames[this.at], hops = states.length - 1;
    if (!hop) return `Before: ${data.before}`;
    const part = data.chunks > 1 ? "part" : "";
    return `Hop ${hop} of ${hops}. ${data.after[hop - 1]} Over links: ` +
      `${this.listMoves("device", part)}.`;
  }

  // "chunk 2 from rank 0 to 1, ..."; chunk "": there is one alone, which needs no name.
  listMoves(rank, chunk) {
    const moves = this.movesNow(), text = moves.slice(0, 4).map((move) => {
      const what = !chunk || move.count === 0 ? "" : move.count > 1
        ? `${chunk}s ${move.first} to ${move.first + move.count - 1} `
        : `${chunk} ${move.first} `;
      return `${what}from ${rank} ${move.from} to ${move.to}`;
    }).join(", ");
    return moves.length > 4 ? `${text} and ${moves.length - 4} more` : text;
  }

  sayAllreduce() {
    const {data, hop, states} = this.frames[this.at], hops = states.length - 1;
    const all = data.chunks * data.ranks, full = (1n << BigInt(data.ranks)) - 1n;
    const done = states[hop].flat().filter((terms) => terms === full).length;
    if (!hop) {
      return "Before: each rank holds its own gradients alone" +
        `${data.chunks > 1 ? `, cut into ${data.chunks} chunks` : ""}. ` +
        `${hops} hop${hops > 1 ? "s follow" : " follows"}.`;
    }
    const moves = this.movesNow(), adds = moves.filter((move) => move.added).length;
    const slices = ["ring", "direct"].includes(data.algorithm);
    const add = slices ? "Reduce-scatter" : "Reduce", copy = slices ? "All-gather" : "Broadcast";
    const kind = adds === moves.length ? `${add}: what arrives is added to what is there`
      : adds ? "Some ranks add what arrives, others take a result"
        : states[hop - 1].flat().some((terms) => terms === full)
          ? `${copy}: complete sums are copied` : "Gather: terms are copied";
    return `Hop ${hop} of ${hops}. ${kind}: ${this.listMoves("rank", "chunk")}. ` +
      `${done} of ${all} cells hold the complete sum.`;
  }

  // ---- drawing ----

  draw(moving) {
    const total = Math.max(280, this.stage.parentNode.clientWidth);
    const {data, hop, states} = this.frames[this.at], {ranks} = data, columns = data.chunks;
    this.ranks = ranks;
    this.gutter = ranks > 16 ? 26 : data.before ? 74 : 60;
    this.cell = Math.min(130, (total - this.gutter - 2) / columns);
    this.row = ranks > 16 ? 9 : ranks > 8 ? 20 : 40;
    const top = 22, gap = this.cell > 12 ? 4 : 1, before = states[Math.max(0, hop - 1)];
    this.stage.replaceChildren();
    const height = top + ranks * this.row + 4;
    this.stage.setAttribute("viewBox", `0 0 ${total} ${height}`);
    this.stage.setAttribute("height", height);
    this.stage.setAttribute("aria-label", this.said.textContent);
    for (let c = 0; c < columns; c++) {
      if (this.cell < 20 && c % 8) continue;
      svgElement("text", {x: this.gutter + (c + 0.5) * this.cell, y: 14, class: "quiet",
        "font-size": 12, "text-anchor": "middle"}, this.stage).textContent =
        columns === 1 ? "all" : this.cell > 60 ? `${data.before ? "part" : "chunk"} ${c}` : c;
    }
    if (ranks > MANY) this.drawGround(top, gap, columns);
    for (let r = 0; r < ranks; r++) {
      const y = top + r * this.row;
      if (ranks <= 16 || r % 8 === 0) {
        svgElement("text", {x: this.gutter - 8, y: y + this.row / 2 + 4, class: "quiet",
          "font-size": 12, "text-anchor": "end"}, this.stage).textContent =
          ranks > 16 ? r : `${data.before ? "device" : "rank"} ${r}`;
      }
      for (let c = 0; c < columns; c++) {
        const terms = states[hop][r][c], changed = terms !== before[r][c];
        this.drawCell(this.gutter + c * this.cell, y, this.cell - gap, this.row - gap, terms,
          changed, moving ? before[r][c] : null);
      }
    }
    if (hop) this.drawMoves(top, gap, moving);
  }

  // The ground of all cells as one shape: with many ranks there are thousands.
  drawGround(top, gap, columns) {
    const width = this.cell - gap, height = this.row - gap, cells = [];
    for (let r = 0; r < this.ranks; r++)
      for (let c = 0; c < columns; c++) {
        cells.push(`M${this.gutter + c * this.cell} ${top + r * this.row}h${width}v${height}` +
          `h${-width}z`);
      }
    svgElement("path", {d: cells.join(""), class: "raised"}, this.stage);
  }

  // old: what stood there before the hop, shown until the chunk has arrived.
  drawCell(x, y, width, height, terms, changed, old) {
    const {ranks} = this, many = ranks > MANY; // then without a ground and without a movement
    const group = many ? this.stage : svgElement("g", {}, this.stage);
    if (!many) svgElement("rect", {x, y, width, height, class: "raised"}, group);
    const whole = this.frames[this.at].data.copies;
    const put = (set, parent) => {
      if (whole) { // copied data has one colour, that of the device that it came from
        const from = set.toString(2).length - 1;
        if (set) svgElement("rect", {x, y, width, height, class: RANK_COLOURS[from % 8]}, parent);
        return;
      }
      if (ranks > 8) { // as many as there are, without their names
        const count = set.toString(2).replaceAll("0", "").length;
        svgElement("rect", {x, y, width: width * count / ranks, height,
          class: count === ranks ? "loss" : "backward"}, parent);
        return;
      }
      for (let r = 0; r < ranks; r++)
        if (set >> BigInt(r) & 1n)
          svgElement("rect", {x: x + r * width / ranks, y, width: width / ranks + 0.3, height,
            class: RANK_COLOURS[r % 8]}, parent);
    };
    const now = many ? group : svgElement("g", {}, group);
    put(terms, now);
    if (changed) svgElement("rect", {x, y: y + height - (many ? 1 : 2), width,
      height: many ? 1 : 3, class: "ink"}, now);
    if (old === null || !changed || many) return;
    put(old, group);
    now.setAttribute("opacity", 0);
    setTimeout(() => {
      now.setAttribute("opacity", 1);
    }, 1000);
  }

  // Each chunk travels in its column from the rank that it leaves to the rank that takes it.
  drawMoves(top, gap, moving) {
    if (!moving || this.ranks > MANY) return;
    for (const move of this.movesNow()) {
      const columns = move.count || this.frames[this.at].data.chunks;
      const box = svgElement("rect", {x: this.gutter + move.first * this.cell,
        width: columns * this.cell - gap, height: this.row - gap - 6,
        y: top + move.from * this.row + 3, rx: 4, opacity: 0.85,
        class: `moving-chunk ${RANK_COLOURS[move.from % 8]}`}, this.stage);
      const by = (move.to - move.from) * this.row;
      box.animate([{transform: "translateY(0)"}, {transform: `translateY(${by}px)`}],
        {duration: 1000, easing: "ease-in-out"}).onfinish = () => box.remove();
    }
  }
}
