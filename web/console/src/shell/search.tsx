// The search field: pages, settings by name, and keys of the store.

import { useRef, useState } from "preact/hooks";
import type { TuningDocument } from "../api/types";
import { hexOfTyped } from "../parts/format";
import { useResource } from "../state/resource";
import { navigate } from "../state/url";
import { PAGES } from "./pages";

interface Hit { words: string; kind: string; url: string }

const HITS_MAX = 12;

function hitsOf(typed: string, settings: string[]): Hit[] {
  const low = typed.trim().toLowerCase();
  if (typed === "") return PAGES.map((page) => ({ words: page.name, kind: `page · g ${page.letter}`, url: page.path }));
  const pages = PAGES.filter((page) => low !== "" && page.name.toLowerCase().includes(low))
    .map((page) => ({ words: page.name, kind: "page", url: page.path }));
  const found = settings.filter((name) => low !== "" && name.includes(low.replaceAll(" ", "_")))
    .map((name) => ({ words: name, kind: "setting", url: `/console/tuning?find=${encodeURIComponent(name)}` }));
  const hex = hexOfTyped(typed); // as it was typed: keys may begin and end with spaces
  const keys = [
    { words: typed, kind: "key, its value", url: `/console/data?key=${hex}` },
    { words: typed, kind: "keys with this prefix", url: `/console/data?prefix=${hex}` },
  ];
  return [...pages, ...found.slice(0, HITS_MAX - 4), ...keys];
}

export function Search() {
  const [typed, setTyped] = useState("");
  const [isOpen, setOpen] = useState(false);
  const [chosen, choose] = useState(0);
  const input = useRef<HTMLInputElement>(null);
  const tuning = useResource<TuningDocument>(isOpen ? "tuning" : null);
  const hits = isOpen ? hitsOf(typed, tuning.data?.settings.map((setting) => setting.name) ?? []) : [];

  const go = (hit: Hit | undefined) => {
    if (!hit) return;
    navigate(hit.url);
    setTyped("");
    setOpen(false);
    input.current?.blur();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "ArrowDown") choose((chosen + 1) % Math.max(hits.length, 1));
    else if (event.key === "ArrowUp") choose((chosen + hits.length - 1) % Math.max(hits.length, 1));
    else if (event.key === "Enter") go(hits[chosen]);
    else return;
    event.preventDefault();
  };
  return (
    <div class="search" role="search">
      <input
        ref={input} id="search" type="text" role="combobox" placeholder="Search" aria-label="Search pages, settings and keys"
        aria-expanded={isOpen} aria-controls="search-list" aria-autocomplete="list" autocomplete="off" spellcheck={false}
        aria-activedescendant={isOpen && hits.length > 0 ? `search-${chosen}` : undefined} value={typed}
        onInput={(event) => { setTyped(event.currentTarget.value); choose(0); setOpen(true); }}
        onFocus={() => setOpen(true)} onBlur={() => setOpen(false)} onKeyDown={onKeyDown}
      />
      <kbd aria-hidden="true">/</kbd>
      {isOpen && (
        <ul class="search-list" id="search-list" role="listbox" aria-label="Found">
          {hits.map((hit, index) => (
            <li
              key={hit.kind + hit.url} id={`search-${index}`} role="option" aria-selected={index === chosen}
              onMouseDown={(event) => { event.preventDefault(); go(hit); }} onMouseEnter={() => choose(index)}
            >
              <span class="wrap">{hit.words}</span>
              <span class="quiet">{hit.kind}</span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
