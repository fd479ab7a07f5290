"use strict";
// What the page can do beyond showing: the choice of the theme, and what a printer needs.

{
  const root = document.documentElement, button = document.getElementById("theme");
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  const label = () => {
    button.textContent = isDark() ? "light" : "dark";
    button.setAttribute("aria-label", `use the ${button.textContent} theme`);
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    label();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
  label();

  const data = JSON.parse(document.getElementById("data").textContent);
  const timeline = document.getElementById("timeline");
  if (timeline && data.runs.length) new Timeline(timeline, data);
  for (const [figure, links] of Object.entries(data.traffic))
    new TrafficReader(document.getElementById(figure), links);
  for (const [figure, collectives] of Object.entries(data.playbacks))
    if (collectives.length) new Playback(document.getElementById(figure), collectives);
}
