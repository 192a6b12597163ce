// Operations, latencies, share of one-sided searches and log lag over time.

import { Chart } from "../../parts/chart";
import { Segments } from "../../parts/choice";
import { Panel } from "../../parts/panel";
import { Empty } from "../../parts/states";
import type { Histories as All } from "../../state/series";
import { chooseRange, RANGES, type Range } from "./range";

export function Histories({ histories, range }: { histories: All; range: Range }) {
  const { times, values, data } = histories;
  const marks = data?.marks ?? [];
  const common = { times, marks, sync: "overview" };
  return (
    <Panel
      title={range.title} id="histories" window={range.window} source={histories}
      actions={<Segments label="How far back" value={range.name} options={RANGES.map((one) => [one.name, one.short] as const)} onChange={chooseRange} />}
    >
      {times.length < 2 && <Empty>The history begins now. It fills by a point each second.</Empty>}
      {times.length >= 2 && (
        <div class="columns">
          <Chart {...common} title="Operations" unit="1/s" lines={[
            { name: "get", values: values("ops_get"), colour: "--series-1" },
            { name: "search", values: values("ops_search"), colour: "--series-4", dash: [6, 3] },
            { name: "one-sided search", values: values("searches_one_sided"), colour: "--one-sided", dash: [4, 2] },
            { name: "put", values: values("ops_put"), colour: "--series-2" },
            { name: "delete", values: values("ops_delete"), colour: "--series-3", dash: [2, 3] },
            { name: "scan", values: values("ops_scan"), colour: "--series-5", dash: [8, 3, 2, 3] },
          ]} />
          <Chart {...common} title="Latency" unit="us" lines={[
            { name: "get p50", values: values("latency_get_p50_us"), colour: "--series-1" },
            { name: "get p99", values: values("latency_get_p99_us"), colour: "--series-1", dash: [6, 3] },
            { name: "put p50", values: values("latency_put_p50_us"), colour: "--series-2" },
            { name: "put p99", values: values("latency_put_p99_us"), colour: "--series-2", dash: [6, 3] },
          ]} />
          <Chart {...common} title="Searches that clients did themselves" unit="share" topMin={1} lines={[
            { name: "one-sided", values: values("one_sided_share"), colour: "--one-sided" },
          ]} />
          <Chart {...common} title="Log lag: appended, not yet durable" unit="bytes" lines={[
            { name: "lag", values: values("log_lag_bytes"), colour: "--series-2" },
          ]} />
        </div>
      )}
    </Panel>
  );
}
