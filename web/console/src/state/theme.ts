// Light or dark: as the system says, or as was chosen here.

import { keep, kept as keptValue } from "./storage";
import { createStore } from "./store";

export type Theme = "auto" | "light" | "dark";

const NAME = "cell.theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

function kept(): Theme {
  const value = keptValue("localStorage", NAME);
  return value === "light" || value === "dark" ? value : "auto";
}

export const theme = createStore<Theme>(kept());

/** What is shown: canvases follow it, because CSS does not reach into them. */
export const shownTheme = createStore<"light" | "dark">("light");

function apply(): void {
  const chosen = theme.get();
  if (chosen === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
  shownTheme.set(chosen === "auto" ? (dark.matches ? "dark" : "light") : chosen);
}

export function setTheme(chosen: Theme): void {
  keep("localStorage", NAME, chosen === "auto" ? null : chosen);
  theme.set(chosen);
  apply();
}

dark.addEventListener("change", apply);
apply();
