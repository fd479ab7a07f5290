"use strict";
// The button that changes the theme. Pictures are drawn in C.
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
}
