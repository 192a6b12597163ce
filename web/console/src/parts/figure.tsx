// A number with its unit, and a tile that shows one with its window and age.

import type { ComponentChildren } from "preact";
import { inWords, type Figure as FigureText } from "./format";
import { Spark } from "./spark";

export function Figure({ value }: { value: FigureText }) {
  return (
    <span class="figure">
      {value.number}
      {value.unit && <span class="unit"> {value.unit}</span>}
    </span>
  );
}

interface TileProps {
  name: string; value: FigureText;
  /** Over what time it was measured: "last second", "now". */
  window: string;
  note?: ComponentChildren; values?: (number | null)[]; href?: string; level?: "ok" | "warning" | "critical";
}

export function Tile({ name, value, window, note, values, href, level = "ok" }: TileProps) {
  const body = (
    <>
      <span class="tile-name">{name}</span>
      <span class="tile-value"><Figure value={value} /></span>
      {values && <Spark values={values} label={`${name}, ${inWords(value)}`} />}
      <span class="tile-note">{window}{note && <> · {note}</>}</span>
    </>
  );
  return href
    ? <a class={`tile tile-${level}`} href={href}>{body}</a>
    : <div class={`tile tile-${level}`}>{body}</div>;
}

/** `narrow` fits five in a row where there are four else. */
export function Tiles({ children, narrow }: { children: ComponentChildren; narrow?: boolean }) {
  return <div class={narrow ? "tiles tiles-narrow" : "tiles"}>{children}</div>;
}
