// Each second a point: across what a read waits, up what a search waits at the server. On the line of slope m the
// two sides are equal; above it one-sided reads are cheaper, below it the server. The line can be dragged.

import { useRef } from "preact/hooks";
import type { Mark } from "../../api/types";
import { clockTime, inWords, nanoseconds } from "../../parts/format";
import { Empty } from "../../parts/states";
import { ticks } from "../../parts/ticks";
import { isServerSide, marked, type Sample } from "./samples";
import { M_MAX, M_MIN, M_STEP, type Tried } from "./tried";

const [WIDTH, HEIGHT, LEFT, BOTTOM, EDGE] = [460, 300, 62, 34, 10];

interface PhaseProps { samples: Sample[]; marks: Mark[]; m: number | null; tried: Tried }

export function Phase({ samples, marks, m: measured, tried }: PhaseProps) {
  const svg = useRef<SVGSVGElement>(null);
  if (samples.length === 0) return <Empty>No sample yet: the client has not used both paths in the last 120 s.</Empty>;
  const m = tried.shown ?? samples[samples.length - 1]!.m;
  const right = Math.max(...samples.map((one) => one.read), 1) * 1.15;
  const top = Math.max(...samples.map((one) => one.server), 1) * 1.15;
  const x = (value: number) => LEFT + (Math.max(0, value) / right) * (WIDTH - LEFT - EDGE);
  const y = (value: number) => HEIGHT - BOTTOM - (Math.max(0, value) / top) * (HEIGHT - BOTTOM - EDGE);
  const slopeAt = (event: PointerEvent): number => {
    const box = svg.current!.getBoundingClientRect();
    const across = (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - EDGE);
    const up = (HEIGHT - BOTTOM - ((event.clientY - box.top) / box.height) * HEIGHT) / (HEIGHT - BOTTOM - EDGE);
    return across <= 0 ? M_MAX : Math.max(0, (up * top) / (across * right));
  };
  const last = samples[samples.length - 1]!;
  const trail = samples.map((one, index) => `${index === 0 ? "M" : "L"}${x(one.read).toFixed(1)} ${y(one.server).toFixed(1)}`).join("");
  const server = samples.filter((one) => isServerSide(one, m)).length;
  const words = `${samples.length} seconds; the server was cheaper in ${server}. Now ${inWords(nanoseconds(last.server))} at the server against ${inWords(nanoseconds(last.read))} a read times m ${m.toFixed(1)}.`;
  return (
    <figure class="stack-tight">
      <svg ref={svg} class="phase" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="group" aria-label={words}>
        <g aria-hidden="true">
          <Regions x={x} y={y} m={m} right={right} top={top} />
          {tried.m !== null && measured !== null && <DecisionLine x={x} y={y} m={measured} right={right} top={top} kind="phase-measured" />}
          <Axes x={x} y={y} right={right} top={top} />
          <path class="phase-trail" d={trail} />
          {samples.map((one, index) => (
            <circle
              key={one.at} class={isServerSide(one, m) ? "phase-server" : "phase-one-sided"} cx={x(one.read)} cy={y(one.server)} r="2.6"
              opacity={0.15 + 0.75 * (index / samples.length)}
            />
          ))}
          <circle class="phase-now" cx={x(last.read)} cy={y(last.server)} r="6" />
          <text class="phase-label" x={Math.min(x(last.read) + 10, WIDTH - 34)} y={y(last.server) - 8}>now</text>
          {marked(samples, marks).map(({ sample, mark }) => (
            <rect key={mark.revision} class="phase-mark" x={x(sample.read) - 6} y={y(sample.server) - 6} width="12" height="12">
              <title>{clockTime(mark.at_unix_ms)} {mark.names.join(", ")}</title>
            </rect>
          ))}
        </g>
        <Grip x={x} y={y} m={m} right={right} top={top} slopeAt={slopeAt} onMove={tried.set} />
      </svg>
      <figcaption class="quiet">{words} Drag the line, or move it by arrow keys, to try another m.{marked(samples, marks).length > 0 && " A square: settings changed then."}</figcaption>
    </figure>
  );
}

type Scale = (value: number) => number;

interface LineProps { x: Scale; y: Scale; m: number; right: number; top: number }

/** Where the line of this slope leaves the plot. */
const edgeOf = ({ m, right, top }: Pick<LineProps, "m" | "right" | "top">): number => Math.min(right, top / m);

function DecisionLine({ kind, ...line }: LineProps & { kind: string }) {
  const { x, y, m } = line;
  const edge = edgeOf(line);
  return <line class={kind} x1={x(0)} y1={y(0)} x2={x(edge)} y2={y(edge * m)} />;
}

interface GripProps extends LineProps { slopeAt(event: PointerEvent): number; onMove(m: number): void }

/** The line as a slider: a wide strip takes the pointer, arrows move it by a step. */
function Grip({ slopeAt, onMove, ...line }: GripProps) {
  const { x, y, m } = line;
  const edge = edgeOf(line);
  const onKeyDown = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowUp: m + M_STEP, ArrowRight: m + M_STEP, ArrowDown: m - M_STEP, ArrowLeft: m - M_STEP, PageUp: m + 1, PageDown: m - 1, Home: M_MIN, End: M_MAX };
    const next = steps[event.key];
    if (next === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    onMove(next);
  };
  return (
    <g
      class="phase-grip" role="slider" tabindex={0} aria-label="m, the slope of the decision line" aria-valuemin={M_MIN} aria-valuemax={M_MAX}
      aria-valuenow={Number(m.toFixed(1))} aria-valuetext={`${m.toFixed(1)} reads a search`} onKeyDown={onKeyDown}
      onPointerDown={(event) => { if (event.button === 0) event.currentTarget.setPointerCapture(event.pointerId); }}
      onPointerMove={(event) => { if (event.currentTarget.hasPointerCapture(event.pointerId)) onMove(slopeAt(event)); }}
    >
      <line class="phase-grip-strip" x1={x(0)} y1={y(0)} x2={x(edge)} y2={y(edge * m)} />
      <line class="phase-line" x1={x(0)} y1={y(0)} x2={x(edge)} y2={y(edge * m)} />
      <circle class="phase-grip-knob" cx={x(edge * 0.9)} cy={y(edge * 0.9 * m)} r="6" />
    </g>
  );
}

function Regions({ x, y, m, right, top }: LineProps) {
  const edge = edgeOf({ m, right, top });
  // beside the knob of the line, where there is room
  const knob = { x: x(edge * 0.9), y: y(edge * 0.9 * m), isLeft: x(edge * 0.9) < WIDTH / 2 };
  const turn = `${x(edge)},${y(edge * m)}`;
  const corner = edge < right ? `${x(right)},${y(top)} ` : "";
  return (
    <>
      <polygon class="phase-area-one-sided" points={`${x(0)},${y(0)} ${x(0)},${y(top)} ${edge < right ? "" : `${x(right)},${y(top)} `}${turn}`} />
      <polygon class="phase-area-server" points={`${x(0)},${y(0)} ${turn} ${corner}${x(right)},${y(0)}`} />
      <text class="phase-side" x={x(0) + 8} y={y(top) + 16}>one-sided is cheaper</text>
      <text class="phase-side" x={x(right) - 6} y={y(0) - 8} text-anchor="end">server is cheaper</text>
      <text class="phase-side" x={knob.x + (knob.isLeft ? 12 : -12)} y={Math.min(knob.y - 4, HEIGHT - BOTTOM - 26)} text-anchor={knob.isLeft ? "start" : "end"}>slope m = {m.toFixed(1)}</text>
    </>
  );
}

function Axes({ x, y, right, top }: { x: Scale; y: Scale; right: number; top: number }) {
  return (
    <>
      <line class="phase-axis" x1={x(0)} y1={y(0)} x2={x(right)} y2={y(0)} />
      <line class="phase-axis" x1={x(0)} y1={y(0)} x2={x(0)} y2={y(top)} />
      {ticks(right).map((at) => <text key={at} class="phase-tick" x={x(at)} y={y(0) + 14} text-anchor="middle">{inWords(nanoseconds(at))}</text>)}
      {ticks(top).map((at) => <text key={at} class="phase-tick" x={x(0) - 6} y={y(at) + 4} text-anchor="end">{inWords(nanoseconds(at))}</text>)}
      <text class="phase-name" x={x(right / 2)} y={HEIGHT - 4} text-anchor="middle">l_r − RTT, the wait of one read</text>
      <text class="phase-name" x={12} y={y(top / 2)} text-anchor="middle" transform={`rotate(-90 12 ${y(top / 2)})`}>l_s − RTT</text>
    </>
  );
}
