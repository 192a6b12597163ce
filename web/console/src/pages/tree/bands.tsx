// The three bands: heat over time, owners, icicle. A drag over them zooms; arrows and Enter choose a meganode.

import { useMemo, useRef, useState } from "preact/hooks";
import type { BucketsDocument, HeatDocument } from "../../api/types";
import { Segments } from "../../parts/choice";
import { keyText, shortened } from "../../parts/format";
import { nodeColour } from "../../parts/node_name";
import { MissingNote, ProblemNote } from "../../parts/states";
import { TwinButton, useTwin } from "../../parts/twin";
import { useResource, useShownUntilNext } from "../../state/resource";
import { setQuery, useParam, useRestingParam } from "../../state/url";
import { at, axisOf, owners, type Axis, type Placed } from "./axis";
import { BucketCard } from "./bucket_card";
import { backOf, heatPath, type HeatBack, type HeatOf } from "./heat";
import { HeatStrip } from "./heat_strip";
import { HeatTable } from "./heat_table";
import { Icicle } from "./icicle";
import type { Measure } from "./measure";
import { zoomIn, zoomOut } from "./zoom";

/** In the address, the bucket of the lowest key: its key has no bytes. */
const FIRST = "first";

/** A step is of ten seconds; of the newest one more is known each second. */
const HEAT_EVERY_MS = 2000;

/** Less than this part of the axis is a click, no drag. */
const DRAG_MIN = 0.01;

export function Bands({ document, measure }: { document: BucketsDocument; measure: Measure }) {
  const axis = useMemo(() => axisOf(document, measure), [document, measure]);
  const of = (useParam("heat") === "reads" ? "reads" : "writes") as HeatOf;
  const back = (useParam("back") === "1h" ? "1h" : "10m") as HeatBack;
  const hasKeys = !document.keys_left_out;
  const [from, to] = [useParam("from"), useParam("to")];
  const path = hasKeys ? heatPath(from, to, back) : null;
  const heat = useShownUntilNext(useResource<HeatDocument>(path, HEAT_EVERY_MS));
  const backShown = heat.data ? backOf(heat.data) : back;
  const [isTable] = useTwin("heat");
  const [inUrl, choose] = useRestingParam("chosen");
  const [pointed, point] = useState<string | null>(null);
  const chosen = inUrl === FIRST ? "" : inUrl;
  const [brush, setBrush] = useState<[number, number] | null>(null);
  const area = useRef<HTMLDivElement>(null);
  const opened = useParam("meganode");
  const placed = (low: string | null) => (low === null ? null : axis.buckets.find((one) => one.bucket.low.hex === low) ?? null);
  const current = placed(chosen);
  const shown = placed(pointed) ?? current;

  const share = (event: PointerEvent) => {
    const box = area.current!.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  const onDown = (event: PointerEvent) => {
    if (event.button !== 0) return;
    area.current?.setPointerCapture(event.pointerId);
    setBrush([share(event), share(event)]);
  };
  const onMove = (event: PointerEvent) => {
    if (brush) setBrush([brush[0], share(event)]);
    else point(at(axis, share(event))?.bucket.low.hex ?? null);
  };
  const onUp = (event: PointerEvent) => {
    if (!brush) return;
    const [left, right] = [Math.min(brush[0], share(event)), Math.max(brush[0], share(event))];
    setBrush(null);
    if (right - left < DRAG_MIN) open(at(axis, left), hasKeys);
    else if (hasKeys) zoom(axis, left, right);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const isMine = onAxisKey(event.key, axis, current, hasKeys, (low) => { point(null); choose(low || FIRST); });
    if (isMine) event.preventDefault();
  };
  return (
    <div class="stack-tight">
      {hasKeys && <div class="row row-between">
        <div class="row">
          <Segments
            label="Heat of" value={of} options={[["writes", "Writes"], ["reads", "Reads"]] as const}
            onChange={(value) => setQuery({ heat: value === "writes" ? null : value })}
          />
          <Segments
            label="Heat of the last" value={back} options={[["10m", "10 min"], ["1h", "1 h"]] as const}
            onChange={(value) => setQuery({ back: value === "10m" ? null : value })}
          />
        </div>
        <span class="quiet">Drag to zoom. Click or Enter opens a meganode. <TwinButton name="heat" of="the heat" /></span>
      </div>}
      <div
        class="bands" ref={area} tabIndex={0} role="group" aria-label="Key space. Arrows move over the meganodes, Enter opens, plus and minus zoom. The table below has the same figures."
        onPointerDown={onDown} onPointerMove={onMove} onPointerUp={onUp} onPointerCancel={() => setBrush(null)} onPointerLeave={() => point(null)} onKeyDown={onKeyDown}
      >
        {hasKeys && <HeatStrip heat={heat.data} axis={axis} of={of} back={backShown} />}
        <OwnerStrip axis={axis} />
        <Icicle axis={axis} chosen={shown?.bucket.low.hex ?? null} opened={opened} />
        {brush && <span class="brush" style={{ left: `${Math.min(...brush) * 100}%`, width: `${Math.abs(brush[1] - brush[0]) * 100}%` }} />}
      </div>
      {hasKeys && <AxisEnds document={document} />}
      <BucketCard hasKeys={hasKeys} bucket={shown?.bucket ?? null} isPointed={pointed !== null} />
      {heat.problem && <ProblemNote problem={heat.problem} />}
      {!document.missing?.length && <MissingNote missing={heat.data?.missing} />}
      {isTable && heat.data && <HeatTable heat={heat.data} back={backShown} />}
    </div>
  );
}

function open(place: Placed | null, hasKeys: boolean): void {
  if (!place) return;
  if (place.bucket.id) setQuery({ meganode: place.bucket.id, tree_node: null }, true);
  else if (hasKeys) zoomIn(place.bucket.low.hex || null, place.bucket.high?.hex ?? null);
}

function zoom(axis: Axis, left: number, right: number): void {
  const [first, last] = [at(axis, left), at(axis, Math.max(left, right - 1e-6))];
  zoomIn(first?.bucket.low.hex || null, last?.bucket.high?.hex ?? null);
}

/** Whether the key meant something here. */
function onAxisKey(key: string, axis: Axis, current: Placed | null, hasKeys: boolean, choose: (low: string) => void): boolean {
  const last = axis.buckets.length - 1;
  const index = current?.index ?? -1;
  const go = (to: number) => choose(axis.buckets[Math.min(last, Math.max(0, to))]!.bucket.low.hex);
  if (key === "ArrowRight") go(index + 1);
  else if (key === "ArrowLeft") go(index - 1);
  else if (key === "Home") go(0);
  else if (key === "End") go(last);
  else if (key === "Enter") open(current, hasKeys);
  else if (!hasKeys) return false;
  else if (key === "-") zoomOut();
  else if (key === "+") zoom(axis, ...around(axis, current));
  else return false;
  return true;
}

/** What plus zooms into: two meganodes on either side. A zoom may have left the chosen one outside; then the middle. */
function around({ buckets }: Axis, current: Placed | null): [number, number] {
  if (!current) return [0.25, 0.75];
  return [buckets[Math.max(0, current.index - 2)]!.left, buckets[Math.min(buckets.length - 1, current.index + 2)]!.right];
}

function OwnerStrip({ axis }: { axis: Axis }) {
  return (
    <div class="band band-owners" aria-hidden="true">
      {owners(axis).map((run) => (
        <span key={run.left} class="owner" style={{ left: `${run.left * 100}%`, width: `${(run.right - run.left) * 100}%`, background: nodeColour(run.node) }}>
          {run.right - run.left > 0.07 ? (run.node === null ? "nobody" : `node ${run.node}`) : run.right - run.left > 0.02 ? run.node ?? "?" : ""}
        </span>
      ))}
    </div>
  );
}

function AxisEnds({ document }: { document: BucketsDocument }) {
  return (
    <div class="row row-between quiet mono">
      <span>{shortened(keyText(document.low), 28)}</span>
      <span>{shortened(keyText(document.high), 28)}</span>
    </div>
  );
}
