// What the rule of the paper would have decided for the recorded seconds with another m. Latencies are taken as they
// were: they would have been others, had searches gone another way. So it is a replay and no forecast.

import { clockTime, inWords, share } from "../../parts/format";
import { Figure } from "../../parts/figure";
import { Empty } from "../../parts/states";
import type { Mark } from "../../api/types";
import { MarkList } from "../../parts/chart";
import { isServerSide, marked, type Sample } from "./samples";
import { M_MAX, M_MIN, M_STEP, type Tried } from "./tried";

interface ReplayProps { samples: Sample[]; marks: Mark[]; m: number | null; tried: Tried }

export function Replay({ samples, marks, m, tried }: ReplayProps) {
  const shown = tried.shown ?? samples[samples.length - 1]?.m;
  if (samples.length === 0 || shown === undefined) return <Empty>There is nothing to replay yet: no second has all of l_s, l_r, RTT and m.</Empty>;
  const changes = marked(samples, marks);
  const oneSided = (by: (sample: Sample) => number) => weightedShare(samples, (sample) => !isServerSide(sample, by(sample)));
  return (
    <div class="stack">
      <label class="field">
        <span>m, reads a search: <b>{shown.toFixed(1)}</b> {tried.m === null ? "as measured" : m === null ? "" : `instead of ${m.toFixed(1)}`}</span>
        <input
          type="range" min={M_MIN} max={M_MAX} step={M_STEP} value={shown} aria-label="m, reads a search"
          onInput={(event) => tried.set(Number(event.currentTarget.value))}
        />
      </label>
      <Lane samples={samples} changes={changes.map((one) => one.index)} title={`with m = ${shown.toFixed(1)}`} isServer={(sample) => isServerSide(sample, shown)} />
      <Lane samples={samples} changes={changes.map((one) => one.index)} title="with m as measured" isServer={(sample) => isServerSide(sample, sample.m)} />
      {changes.length > 0 && <MarkList marks={changes.map((one) => one.mark)} />}
      <dl class="facts">
        <dt>One-sided by the rule, m = {shown.toFixed(1)}</dt><dd><Figure value={share(oneSided(() => shown))} /></dd>
        <dt>One-sided by the rule, m measured</dt><dd><Figure value={share(oneSided((sample) => sample.m))} /></dd>
        <dt>One-sided as it was</dt><dd><Figure value={share(measuredShare(samples))} /></dd>
      </dl>
      <p class="quiet">Replay, not a forecast: {samples.length} recorded seconds, each weighed by its searches. Had the decisions differed, the latencies would have, too.</p>
      {tried.m !== null && <p><button class="button button-small" type="button" onClick={() => tried.set(null)}>Back to the measured m</button></p>}
    </div>
  );
}

function weightedShare(samples: Sample[], holds: (sample: Sample) => boolean): number | null {
  const all = samples.reduce((sum, one) => sum + one.searches, 0);
  return all === 0 ? null : samples.reduce((sum, one) => sum + (holds(one) ? one.searches : 0), 0) / all;
}

function measuredShare(samples: Sample[]): number | null {
  const known = samples.filter((one) => one.share !== null);
  const all = known.reduce((sum, one) => sum + one.searches, 0);
  return all === 0 ? null : known.reduce((sum, one) => sum + one.searches * (one.share ?? 0), 0) / all;
}

interface LaneProps { samples: Sample[]; changes: number[]; title: string; isServer(sample: Sample): boolean }

function Lane({ samples, changes, title, isServer }: LaneProps) {
  const width = 100 / samples.length;
  const server = samples.filter(isServer).length;
  const words = `${title}: server in ${server} of ${samples.length} seconds, ${inWords(share(1 - server / samples.length))} one-sided`;
  return (
    <div>
      <p class="row row-between quiet"><span>{title}</span><span>server {server} s, one-sided {samples.length - server} s</span></p>
      <svg class="lane" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" aria-label={words}>
        {samples.map((one, index) => (
          <rect
            key={one.at} class={isServer(one) ? "phase-server" : "phase-one-sided"} x={index * width} width={width + 0.05}
            y={isServer(one) ? 5 : 0} height="5"
          ><title>{clockTime(one.at)}</title></rect>
        ))}
        {changes.map((index) => <rect key={index} class="lane-mark" x={index * width} width="0.5" y="0" height="10" />)}
      </svg>
    </div>
  );
}
