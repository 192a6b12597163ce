// Where the page is: path and query. All that can be chosen lives in the query, so that a link shows the same.

import { useEffect, useRef, useState } from "preact/hooks";
import { createStore, useStore } from "./store";

export interface Place { path: string; query: URLSearchParams }

const read = (): Place => ({ path: location.pathname, query: new URLSearchParams(location.search) });

export const place = createStore<Place>(read());

addEventListener("popstate", () => place.set(read()));

export function navigate(url: string): void {
  history.pushState(null, "", url);
  place.set(read());
}

export type QueryChange = Record<string, string | number | null>;

/** The address with some members of the query changed; null takes one away. */
export function urlWith(change: QueryChange, base: Place = place.get()): string {
  const query = new URLSearchParams(base.query);
  for (const [name, value] of Object.entries(change)) {
    if (value === null || value === "") query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString();
  return text ? `${base.path}?${text}` : base.path;
}

/** Changes the query. A step of the history only where going back should undo it. */
export function setQuery(change: QueryChange, step = false): void {
  const url = urlWith(change);
  if (step) history.pushState(null, "", url);
  else history.replaceState(null, "", url);
  place.set(read());
}

export const usePlace = (): Place => useStore(place);

export function useParam(name: string): string | null {
  return usePlace().query.get(name);
}

/** How long a control must rest before its value goes into the address: browsers refuse many changes in a row. */
const REST_MS = 250;

/** A member of the query that a slider or a drag moves: shown at once, in the address when it rests. */
export function useRestingParam(name: string): [string | null, (value: string | null) => void] {
  const inUrl = useParam(name);
  const [moved, move] = useState<{ value: string | null } | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const set = (value: string | null) => {
    clearTimeout(timer.current);
    move({ value });
    timer.current = setTimeout(() => {
      setQuery({ [name]: value });
      move(null);
    }, REST_MS);
  };
  return [moved ? moved.value : inUrl, set];
}

/** A set of names in one member of the query: tables that are shown, routes that are open. */
export function useInList(param: string, name: string): [boolean, (isIn: boolean) => void] {
  const list = (useParam(param) ?? "").split(",").filter(Boolean);
  const set = (isIn: boolean) => {
    const now = (place.get().query.get(param) ?? "").split(",").filter((one) => one && one !== name);
    setQuery({ [param]: (isIn ? [...now, name] : now).join(",") });
  };
  return [list.includes(name), set];
}

/** Follows links within the console without loading the page anew. */
export function followLinks(): void {
  document.addEventListener("click", (event) => {
    const link = (event.target as Element | null)?.closest?.("a");
    const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!link || !plain || event.defaultPrevented || link.target || link.hasAttribute("download")) return;
    if (link.origin !== location.origin || !link.pathname.startsWith("/console")) return;
    event.preventDefault();
    navigate(link.pathname + link.search + link.hash);
  });
}
