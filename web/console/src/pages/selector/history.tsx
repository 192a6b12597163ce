// Ten minutes of what the selector measured, in charts that share one time axis.

import { useMemo } from "preact/hooks";
import type { SelectorSeries } from "../../api/types";
import { Chart } from "../../parts/chart";

const NONE: (number | null)[] = [];

export function History({ series }: { series: SelectorSeries }) {
  const values = (name: string) => series.series[name] ?? NONE;
  const other = useMemo(() => otherSide(series), [series]);
  const common = { times: series.times_unix_ms, marks: series.marks, sync: "selector", height: 120 };
  return (
    <div class="columns">
      <Chart {...common} title="Latencies" unit="ns" lines={[
        { name: "l_s, search by the server", values: values("l_s_ns"), colour: "--server" },
        { name: "l_r, one-sided read", values: values("l_r_ns"), colour: "--one-sided", dash: [6, 3] },
        { name: "RTT", values: values("rtt_ns"), colour: "--muted", dash: [2, 3] },
      ]} />
      <Chart {...common} title="Queues: the two sides" unit="ns" lines={[
        { name: "l_s − RTT", values: values("queue_estimate_ns"), colour: "--server" },
        { name: "m (l_r − RTT)", values: other, colour: "--one-sided", dash: [6, 3] },
      ]} />
      <Chart {...common} title="Share of one-sided searches" unit="share" topMin={1} lines={[
        { name: "one-sided", values: values("one_sided_share"), colour: "--one-sided" },
      ]} />
      <Chart {...common} title="m, reads a search" unit="" lines={[{ name: "m", values: values("m"), colour: "--series-4" }]} />
      <Chart {...common} title="Searches" unit="1/s" lines={[{ name: "searches", values: values("searches_per_second"), colour: "--series-1" }]} />
      <Chart {...common} title="Left to the server after tries" unit="1/s" lines={[{ name: "fallbacks", values: values("fallbacks_per_second"), colour: "--series-2" }]} />
    </div>
  );
}

function otherSide({ series }: SelectorSeries): (number | null)[] {
  const { m = [], l_r_ns = [], rtt_ns = [] } = series;
  return l_r_ns.map((read, index) => {
    const [reads, rtt] = [m[index], rtt_ns[index]];
    return typeof read === "number" && typeof reads === "number" && typeof rtt === "number" ? reads * (read - rtt) : null;
  });
}
