// Each second a point: across what a read waits, up what a search waits at the server. On the line of slope m the
// two sides are equal; above it one-sided reads are cheaper, below it the server.

import { inWords, nanoseconds } from "../../parts/format";
import { Empty } from "../../parts/states";
import { ticks } from "../../parts/ticks";
import { isServerSide, type Sample } from "./samples";

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [460, 300, 62, 34];

export function Phase({ samples, m }: { samples: Sample[]; m: number }) {
  if (samples.length === 0) return <Empty>No sample yet: the client has not used both paths in the last 120 s.</Empty>;
  const right = Math.max(...samples.map((one) => one.read), 1) * 1.15;
  const top = Math.max(...samples.map((one) => one.server), 1) * 1.15;
  const x = (value: number) => LEFT + (Math.max(0, value) / right) * (WIDTH - LEFT - 10);
  const y = (value: number) => HEIGHT - BOTTOM - (Math.max(0, value) / top) * (HEIGHT - BOTTOM - 10);
  const edge = Math.min(right, top / m);
  const last = samples[samples.length - 1]!;
  const trail = samples.map((one, index) => `${index === 0 ? "M" : "L"}${x(one.read).toFixed(1)} ${y(one.server).toFixed(1)}`).join("");
  const server = samples.filter((one) => isServerSide(one, m)).length;
  const words = `${samples.length} seconds; the server was cheaper in ${server}. Now ${inWords(nanoseconds(last.server))} at the server against ${inWords(nanoseconds(last.read))} a read times m ${m.toFixed(1)}.`;
  return (
    <figure class="stack-tight">
      <svg class="phase" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} role="img" aria-label={words}>
        <Regions x={x} y={y} edge={edge} m={m} right={right} top={top} />
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
      </svg>
      <figcaption class="quiet">{words}</figcaption>
    </figure>
  );
}

type Scale = (value: number) => number;

function Regions({ x, y, edge, m, right, top }: { x: Scale; y: Scale; edge: number; m: number; right: number; top: number }) {
  const turn = `${x(edge)},${y(edge * m)}`;
  const corner = edge < right ? `${x(right)},${y(top)} ` : "";
  return (
    <>
      <polygon class="phase-area-one-sided" points={`${x(0)},${y(0)} ${x(0)},${y(top)} ${edge < right ? "" : `${x(right)},${y(top)} `}${turn}`} />
      <polygon class="phase-area-server" points={`${x(0)},${y(0)} ${turn} ${corner}${x(right)},${y(0)}`} />
      <line class="phase-line" x1={x(0)} y1={y(0)} x2={x(edge)} y2={y(edge * m)} />
      <text class="phase-side" x={x(0) + 8} y={y(top) + 16}>one-sided is cheaper</text>
      <text class="phase-side" x={x(right) - 6} y={y(0) - 8} text-anchor="end">server is cheaper</text>
      <text class="phase-side" x={x(edge) - 6} y={y(edge * m) + 14} text-anchor="end">slope m = {m.toFixed(1)}</text>
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
