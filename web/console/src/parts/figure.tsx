// A number with its unit, and a tile that shows one with its window and age.

import type { ComponentChildren } from "preact";
import { age, inWords, type Figure as FigureText } from "./format";
import type { Source } from "./panel";
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

interface TilesProps {
  children: ComponentChildren;
  /** Five fit in a row where there are four else. */
  narrow?: boolean;
  /** For tiles that stand in no panel: they are greyed when it is stale. */
  source?: Pick<Source, "isStale" | "ageMs">;
}

export function Tiles({ children, narrow, source }: TilesProps) {
  const tiles = <div class={narrow ? "tiles tiles-narrow" : "tiles"}>{children}</div>;
  if (!source?.isStale) return tiles;
  return <div class="stack-tight is-stale">{tiles}<p class="quiet">Stale: these figures are from {age(source.ageMs)}.</p></div>;
}
