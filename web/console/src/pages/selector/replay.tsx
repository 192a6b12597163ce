// What the rule of the paper would have decided for the recorded seconds with another m. Latencies are taken as they
// were: they would have been others, had searches gone another way. So it is a replay and no forecast.

import { clockTime, inWords, share } from "../../parts/format";
import { Figure } from "../../parts/figure";
import { Empty } from "../../parts/states";
import { setQuery, useParam } from "../../state/url";
import { isServerSide, type Sample } from "./samples";

const M_MAX = 16;

export function Replay({ samples, m }: { samples: Sample[]; m: number }) {
  const tried = Number(useParam("m")) || null;
  const shown = tried ?? m;
  if (samples.length === 0) return <Empty>There is nothing to replay yet.</Empty>;
  const oneSided = (by: (sample: Sample) => number) => weightedShare(samples, (sample) => !isServerSide(sample, by(sample)));
  return (
    <div class="stack">
      <label class="field">
        <span>m, reads a search: <b>{shown.toFixed(1)}</b> {tried === null ? "as measured" : `instead of ${m.toFixed(1)}`}</span>
        <input
          type="range" min="1" max={M_MAX} step="0.1" value={shown} aria-label="m, reads a search"
          onInput={(event) => setQuery({ m: event.currentTarget.value })}
        />
      </label>
      <Lane samples={samples} title={`with m = ${shown.toFixed(1)}`} isServer={(sample) => isServerSide(sample, shown)} />
      <Lane samples={samples} title="with m as measured" isServer={(sample) => isServerSide(sample, sample.m)} />
      <dl class="facts">
        <dt>One-sided by the rule, m = {shown.toFixed(1)}</dt><dd><Figure value={share(oneSided(() => shown))} /></dd>
        <dt>One-sided by the rule, m measured</dt><dd><Figure value={share(oneSided((sample) => sample.m))} /></dd>
        <dt>One-sided as it was</dt><dd><Figure value={share(measuredShare(samples))} /></dd>
      </dl>
      <p class="quiet">Replay, not a forecast: {samples.length} recorded seconds, each weighed by its searches. Had the decisions differed, the latencies would have, too.</p>
      {tried !== null && <p><button class="button button-small" type="button" onClick={() => setQuery({ m: null })}>Back to the measured m</button></p>}
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

function Lane({ samples, title, isServer }: { samples: Sample[]; title: string; isServer(sample: Sample): boolean }) {
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
      </svg>
    </div>
  );
}
