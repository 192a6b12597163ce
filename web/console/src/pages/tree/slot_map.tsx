// A slot as a square: one pixel block a tree node. The numbers of each use stand beside it.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Meganode } from "../../api/types";
import { whole } from "../../parts/format";
import { Table } from "../../parts/table";
import { TwinButton, useTwin } from "../../parts/twin";
import { shownTheme } from "../../state/theme";
import { useStore } from "../../state/store";
import { setQuery } from "../../state/url";

const USES = [
  { name: "free", colour: "--raised" },
  { name: "inner", colour: "--series-2" },
  { name: "leaf", colour: "--series-1" },
  { name: "hidden", colour: "--series-4" },
];

const bytesOf = (base64: string): Uint8Array => Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));

/** A power of two of columns, about as many as rows. */
const columnsFor = (count: number): number => 2 ** Math.max(3, Math.ceil(Math.log2(Math.max(1, count)) / 2));

export function SlotMap({ meganode, chosen }: { meganode: Meganode; chosen: number | null }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const slots = useMemo(() => bytesOf(meganode.slots), [meganode.slots]);
  const theme = useStore(shownTheme);
  const [isTable] = useTwin("slot");
  const columns = columnsFor(slots.length);
  const counts = USES.map((_, use) => slots.reduce((sum, slot) => sum + (slot === use ? 1 : 0), 0));
  useEffect(() => {
    if (canvas.current) paint(canvas.current, slots, columns, chosen);
  }, [slots, columns, theme, chosen]);
  const onClick = (event: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
    const row = Math.floor(((event.clientY - box.top) / box.height) * Math.ceil(slots.length / columns));
    const index = row * columns + column;
    if (index < slots.length) setQuery({ tree_node: index }, true);
  };
  return (
    <figure class="stack-tight">
      <figcaption><b>Slot map</b> <span class="quiet">{whole(slots.length)} tree nodes, {columns} a row; click one</span> <TwinButton name="slot" of="the slot map" /></figcaption>
      <canvas ref={canvas} class="slot-map" onClick={onClick} role="img" aria-label={USES.map((use, index) => `${use.name} ${whole(counts[index])}`).join(", ")} />
      <ul class="legend">
        {USES.map((use, index) => (
          <li key={use.name}><span class="node-chip" style={{ background: `var(${use.colour})` }} />{use.name} <b>{whole(counts[index])}</b></li>
        ))}
      </ul>
      {isTable && <SlotTable slots={slots} columns={columns} />}
      <Chooser slots={slots.length} chosen={chosen} />
    </figure>
  );
}

/** A row of the table is a row of the map. */
function SlotTable({ slots, columns }: { slots: Uint8Array; columns: number }) {
  const rows = Array.from({ length: Math.ceil(slots.length / columns) }, (_, row) => row * columns);
  const uses = (first: number, use: number) => slots.subarray(first, first + columns).reduce((sum, slot) => sum + (slot === use ? 1 : 0), 0);
  return (
    <div class="twin">
      <Table
        caption="Uses of tree nodes" rows={rows} rowKey={(first) => first}
        columns={[
          { name: "tree nodes", cell: (first) => `${first} to ${Math.min(first + columns, slots.length) - 1}` },
          ...USES.map(({ name }, use) => ({ name, isNumber: true, cell: (first: number) => uses(first, use) })),
        ]}
      />
    </div>
  );
}

function Chooser({ slots, chosen }: { slots: number; chosen: number | null }) {
  const [typed, setTyped] = useState(chosen === null ? "" : String(chosen));
  useEffect(() => setTyped(chosen === null ? "" : String(chosen)), [chosen]);
  const submit = (event: Event) => {
    event.preventDefault();
    setQuery({ tree_node: typed === "" ? null : typed }, true);
  };
  return (
    <form class="row" onSubmit={submit}>
      <label class="field"><span>Tree node, 0 to {whole(slots - 1)}</span><input type="number" min={0} max={slots - 1} value={typed} onInput={(event) => setTyped(event.currentTarget.value)} /></label>
      <button class="button" type="submit">Show it</button>
    </form>
  );
}

function paint(canvas: HTMLCanvasElement, slots: Uint8Array, columns: number, chosen: number | null): void {
  const rows = Math.ceil(slots.length / columns);
  const block = Math.max(2, Math.min(8, Math.floor(512 / columns)));
  canvas.width = columns * block;
  canvas.height = rows * block;
  const context = canvas.getContext("2d");
  if (!context) return;
  const style = getComputedStyle(document.documentElement);
  const colours = USES.map((use) => style.getPropertyValue(use.colour).trim());
  const gap = block > 3 ? 1 : 0;
  slots.forEach((slot, index) => {
    context.fillStyle = colours[slot] ?? colours[0]!;
    context.fillRect((index % columns) * block, Math.floor(index / columns) * block, block - gap, block - gap);
  });
  if (chosen === null || chosen >= slots.length) return;
  context.strokeStyle = style.getPropertyValue("--critical").trim();
  context.lineWidth = 2;
  context.strokeRect((chosen % columns) * block - 1, Math.floor(chosen / columns) * block - 1, block + 2, block + 2);
}
