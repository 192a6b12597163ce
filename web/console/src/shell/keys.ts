// Keys that work everywhere. None of them acts while something is being typed.

import { useEffect } from "preact/hooks";
import { navigate } from "../state/url";
import { PAGES } from "./pages";

const SEQUENCE_MS = 1500;

const isTyping = (target: EventTarget | null): boolean =>
  target instanceof HTMLElement && (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));

export const KEYS: [string, string][] = [
  ["?", "Show these keys"],
  ["/", "Search pages, settings and keys"],
  ["Esc", "Close what is open, leave a field"],
  ["b", "Light, dark, or as the system says"],
];

/** Follows the keyboard. `g` and a letter goes to a page. */
export function useKeys(actions: { help(): void; search(): void; theme(): void }): void {
  useEffect(() => {
    let goAt = 0;
    const onKey = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (isTyping(event.target)) {
        if (event.key === "Escape") (event.target as HTMLElement).blur();
        return;
      }
      if (document.querySelector("dialog[open]")) return;
      const isSecond = Date.now() - goAt < SEQUENCE_MS;
      goAt = 0;
      const page = isSecond ? PAGES.find((one) => one.letter === event.key) : undefined;
      if (page) navigate(page.path);
      else if (event.key === "g") goAt = Date.now();
      else if (event.key === "?") actions.help();
      else if (event.key === "/") actions.search();
      else if (event.key === "b") actions.theme();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, []);
}
