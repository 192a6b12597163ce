// Durability: how far the logs are, what a sync costs, and how long a replay would take now.

import type { WalDocument } from "../../api/types";
import { Chart } from "../../parts/chart";
import { Tile, Tiles } from "../../parts/figure";
import { bytes, bytesRate, inWords, microseconds, perSecond, seconds, sumOfKnown } from "../../parts/format";
import { PageFrame } from "../../parts/page";
import { Panel, type Source } from "../../parts/panel";
import { Empty } from "../../parts/states";
import { useTopic } from "../../state/live";
import { useResource } from "../../state/resource";
import { useSeries } from "../../state/series";
import { TwinButton } from "../../parts/twin";
import { hasSegments, LogTable, segmentWords, SegmentTable, SyncTable } from "./log_table";
import { SyncHeatMap } from "./sync_heat";

const NAMES = ["log_bytes", "log_batches", "sync_p50_us", "sync_p99_us", "sync_max_us", "log_lag_bytes", "replies_held"];

export function Durability() {
  const wal = useResource<WalDocument>("wal", 1000);
  const status = useTopic("status");
  const series = useSeries(NAMES, 600);
  return (
    <PageFrame title="Durability" says="A write is answered when it is in both logs of its pair, on stable storage.">
      {wal.data && <Figures document={wal.data} source={wal} maxUs={status.data?.log.sync_max_us ?? null} />}
      <Panel title="Logs by pair" window="CSN: commit sequence number" source={wal}>
        {wal.data && wal.data.pairs.length === 0 && <Empty command="cell load words.tsv --key 1 --value 2 --server HOST:PORT">No pair has a log yet. Write something:</Empty>}
        {wal.data && wal.data.pairs.length > 0 && <LogTable rows={wal.data.pairs} />}
      </Panel>
      {wal.data && hasSegments(wal.data.pairs) && (
        <Panel title="Log segments" window={segmentWords(wal.data.pairs)} source={wal} saysState={false}>
          <SegmentTable rows={wal.data.pairs} />
        </Panel>
      )}
      {(wal.data?.pairs.length ?? 0) > 0 && (
        <Panel title="Syncs by pair" window="last second" source={wal} saysState={false}><SyncTable rows={wal.data!.pairs} /></Panel>
      )}
      {(wal.data?.sync_times?.rows.length ?? 0) > 0 && (
        <Panel title="Sync latency over time" window="all nodes, by second; the stronger, the more syncs" source={wal} saysState={false} actions={<TwinButton name="syncs" of="the syncs" />}>
          <SyncHeatMap syncs={wal.data!.sync_times!} times={series.times} p50={series.values("sync_p50_us")} p99={series.values("sync_p99_us")} max={series.values("sync_max_us")} />
        </Panel>
      )}
      <Panel title="Last ten minutes" window="one point a second, all nodes" source={series}>
        {series.times.length < 2 ? <Empty>The history begins now.</Empty> : <Charts series={series} />}
      </Panel>
    </PageFrame>
  );
}

function Figures({ document, source, maxUs }: { document: WalDocument; source: Source; maxUs: number | null }) {
  const { pairs } = document;
  const sum = (read: (pair: WalDocument["pairs"][number]) => number) => pairs.reduce((total, pair) => total + read(pair), 0);
  const batches = sumOfKnown(pairs.map((pair) => pair.batches_per_second));
  const written = sumOfKnown(pairs.map((pair) => pair.batches_per_second && pair.batches_per_second * (pair.bytes_per_batch ?? 0)));
  const told = document.missing?.length ? ", of what is told" : "";
  const replays = pairs.map((pair) => pair.replay_seconds_estimate).filter((value): value is number => value !== null);
  const syncs = pairs.map((pair) => pair.sync_us.p99).filter((value): value is number => value !== null);
  const worst = syncs.length === 0 ? null : Math.max(...syncs);
  return (
    <Tiles narrow source={source}>
      <Tile name="Not yet durable" value={bytes(pairs.length === 0 ? null : sum((pair) => pair.lag_bytes))} window={`now${told}`} note={`${sum((pair) => pair.lag_csn)} commits`} />
      <Tile name="Written" value={bytesRate(written)} window={written === null ? "not known now" : `last second${told}`} note={`${inWords(perSecond(batches))} batches`} />
      <Tile name="Sync, p99" value={microseconds(worst)} window={batches === null ? "not known now" : worst === null ? "no sync in the last second" : "slowest pair, last second"} note={maxUs === null ? undefined : `max ${inWords(microseconds(maxUs))}`} />
      <Tile name="Longest replay" value={seconds(replays.length === 0 ? null : Math.max(...replays))} window="estimate, if a node died now" />
      <Tile name="Checkpoints" value={{ number: String(pairs.filter((pair) => pair.checkpoint_running).length), unit: "running" }} window="now" note={`${sum((pair) => pair.checkpoints)} since start`} />
    </Tiles>
  );
}

function Charts({ series }: { series: ReturnType<typeof useSeries> }) {
  const { times, values, data } = series;
  const common = { times, marks: data?.marks ?? [], sync: "durability" };
  return (
    <div class="columns">
      <Chart {...common} title="Sync latency" unit="us" lines={[
        { name: "p50", values: values("sync_p50_us"), colour: "--series-1" },
        { name: "p99", values: values("sync_p99_us"), colour: "--series-2", dash: [6, 3] },
        { name: "max", values: values("sync_max_us"), colour: "--series-4", dash: [2, 3] },
      ]} />
      <Chart {...common} title="Written to logs" unit="B/s" lines={[{ name: "written", values: values("log_bytes"), colour: "--series-1" }]} />
      <Chart {...common} title="Batches" unit="1/s" lines={[{ name: "batches", values: values("log_batches"), colour: "--series-3" }]} />
      <Chart {...common} title="Not yet durable" unit="bytes" lines={[{ name: "lag", values: values("log_lag_bytes"), colour: "--series-2" }]} />
    </div>
  );
}
