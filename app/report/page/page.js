"use strict";
// What the page can do beyond showing: it plays the frames of collectives one after another, and
// changes the theme. Pictures are drawn in C.

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
const clamp = (value, least, most) => Math.max(least, Math.min(most, value));

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

  for (const figure of document.querySelectorAll("figure"))
    if (figure.querySelector(".frame")) workStrip(figure);
}
