// What the policy compares as bars of one scale, and the server's sentence: with the paper's rule the two sides of its
// inequality, else what a search takes on either path.

import type { SelectorPair } from "../../api/types";
import { Figure } from "../../parts/figure";
import { inWords, nanoseconds } from "../../parts/format";

/** Its searches go one way whatever they cost. */
export const isTold = (policy: string): boolean => policy === "server" || policy === "client";

export function Gauge({ pair }: { pair: SelectorPair }) {
  const { path, sentence } = pair.decision;
  const isPaper = pair.policy === "paper";
  const server = isPaper ? pair.decision.server_side_ns : pair.l_s_ns;
  const oneSided = isPaper ? pair.decision.one_sided_side_ns : pair.one_sided_ns;
  const isKnown = server !== null && oneSided !== null;
  const top = Math.max(Math.abs(server ?? 0), Math.abs(oneSided ?? 0), 1);
  return (
    <div class="gauge">
      <p class="gauge-sentence" role="status"><span class={path === null ? "gauge-dot" : `gauge-dot gauge-${path}`} aria-hidden="true" />{sentence}</p>
      {server === null && oneSided === null && <p class="quiet">{isTold(pair.policy) ? "This client is told who searches: it measures nothing to compare." : "There are not enough samples yet. They come with the next searches."}</p>}
      <Bar name={isPaper ? "l_s − RTT" : "l_s"} says={isPaper ? "the wait at the server" : "a search by the server"} value={server} top={top} kind="server" isLess={isKnown && server < oneSided} />
      <Bar name={isPaper ? "m (l_r − RTT)" : "one-sided"} says={isPaper ? "the waits of m reads" : "a search with one-sided reads"} value={oneSided} top={top} kind="one_sided" isLess={isKnown && oneSided < server} />
    </div>
  );
}

interface BarProps { name: string; says: string; value: number | null; top: number; kind: string; isLess: boolean }

function Bar({ name, says, value, top, kind, isLess }: BarProps) {
  return (
    <div class="gauge-row">
      <span class="gauge-name"><b>{name}</b> <span class="quiet">{says}</span></span>
      <span class="gauge-track" role="img" aria-label={`${name}: ${inWords(nanoseconds(value))}`}>
        <span class={`gauge-bar gauge-${kind}`} style={{ width: `${(Math.max(0, value ?? 0) / top) * 100}%` }} />
      </span>
      <span class="gauge-value"><Figure value={nanoseconds(value)} /> {isLess && <span class="tag tag-strong">less</span>}</span>
    </div>
  );
}
