// Overview: how the cluster is, in one sentence, and the figures that say why.

import { isAbsent, type Status } from "../../api/types";
import { Tile, Tiles } from "../../parts/figure";
import { bytes, count, inWords, microseconds, perSecond, plural, share, sumOfKnown, whole } from "../../parts/format";
import { PageFrame } from "../../parts/page";
import { Empty, Loading, MissingNote, ProblemNote, StaleNote } from "../../parts/states";
import { Verdict } from "../../parts/verdict";
import { useTopic } from "../../state/live";
import { useSeries, type Histories } from "../../state/series";
import { Histories as Charts } from "./charts";
import { useRange } from "./range";
import { LastEvents, NodeStrip, Operations, Recoveries, Unserved } from "./lists";

/** The first six are all that is done to the store. */
const NAMES = [
  "ops_get", "ops_search", "ops_put", "ops_delete", "ops_scan", "searches_one_sided", "latency_get_p50_us", "latency_get_p99_us",
  "latency_put_p50_us", "latency_put_p99_us", "one_sided_share", "log_lag_bytes", "splits_finished",
];

export function Overview() {
  const status = useTopic("status");
  const range = useRange();
  const histories = useSeries(NAMES, range.seconds, "all", range.everyMs);
  return (
    <PageFrame title="Overview" says="How the cluster is now.">
      {!status.data && (status.problem ? <ProblemNote problem={status.problem} /> : <Loading what="the cluster's status" />)}
      {status.data && (
        <>
          <Verdict status={status.data} ageMs={status.ageMs} isStale={status.isStale} />
          {status.isStale && <StaleNote ageMs={status.ageMs} />}
          <MissingNote missing={status.data.missing} />
          <Unserved status={status.data} />
          <IfEmpty status={status.data} />
          <div class={status.isStale ? "stack is-stale" : "stack"}>
            <Figures status={status.data} histories={histories} />
            <Recoveries rows={status.data.recoveries} />
          </div>
          <div class="columns">
            <Operations status={status.data} histories={histories} range={range} source={status} />
            <NodeStrip status={status.data} source={status} />
          </div>
          <Charts histories={histories} range={range} />
          <LastEvents status={status.data} source={status} />
        </>
      )}
    </PageFrame>
  );
}

/** Whether every pair is served by a node that answers: what is not served is not reported, and not empty. */
const isWhole = (status: Status): boolean =>
  (status.missing?.length ?? 0) === 0 && status.pairs.all > 0 && status.pairs.served === status.pairs.all;

/** Of all nodes that answer. Null while one of them does not know its own: the others' would pass for all. */
function entriesOf(status: Status): number | null {
  const told = status.nodes.filter((node) => !isAbsent(node)).map((node) => node.entries);
  return told.reduce((sum, entries) => (sum === null || entries === null ? null : sum + entries), 0);
}

function IfEmpty({ status }: { status: Status }) {
  if (entriesOf(status) !== 0 || !isWhole(status)) return null;
  return <Empty command="cell load words.tsv --key 1 --value 2 --server HOST:PORT">The store is empty. Fill it, then watch this page:</Empty>;
}

function Figures({ status, histories }: { status: Status; histories: Histories }) {
  const of = (operation: string) => status.operations.find((row) => row.operation === operation);
  const oneSided = status.searches.one_sided_per_second;
  const all = sumOfKnown([...status.operations.map((row) => row.per_second), oneSided]);
  const whose = status.missing?.length ? "nodes that answered" : "all nodes";
  const told = entriesOf(status);
  const entries = isWhole(status) || told !== 0 ? told : null;
  const { searches, log, splits } = status;
  const { unknown } = status.pairs;
  const unserved = status.pairs.all - status.pairs.served - unknown;
  return (
    <Tiles>
      <Tile name="Operations" value={perSecond(all)} window={all === null ? "not known now" : `last second, ${whose}`} note={`${inWords(perSecond(oneSided))} one-sided`} values={sumOf(histories, NAMES.slice(0, 6))} />
      <Tile name="Get, p99" value={microseconds(of("get")?.p99_us)} window="served by CPU" values={histories.values("latency_get_p99_us")} />
      <Tile name="Put, p99" value={microseconds(of("put")?.p99_us)} window="until durable" values={histories.values("latency_put_p99_us")} />
      <Tile
        name="One-sided searches" value={share(searches.one_sided_share)} href="/console/selector"
        window={oneSided === null ? "not known now" : searches.one_sided_share === null ? "no searches now" : "of searches, last second"} values={histories.values("one_sided_share")}
      />
      <Tile name="Log lag" value={bytes(log.lag_bytes)} window="not yet durable" href="/console/durability" values={histories.values("log_lag_bytes")} />
      <Tile
        name="Pairs served" value={{ number: `${status.pairs.served}`, unit: `of ${status.pairs.all}` }} window="now"
        note={[status.pairs.missing > 0 && `${whole(status.pairs.missing)} missing`, unknown > 0 && `${whole(unknown)} not known`].filter(Boolean).join(", ")}
        level={unserved > 0 ? "critical" : unknown > 0 ? "warning" : "ok"} href="/console/nodes"
      />
      <Tile name="Entries" value={count(entries)} window={told === null ? "not known now" : isWhole(status) ? "now" : "now, of what is told"} note={`${whole(splits.finished)} splits done`} href="/console/tree" />
      <Tile
        name="Under way" value={{ number: String(splits.under_way + status.recoveries.length), unit: "" }} window="now"
        note={`${plural(splits.under_way, "split")}, ${plural(status.recoveries.length, "recovery", "recoveries")}`} href="/console/recovery"
      />
    </Tiles>
  );
}

function sumOf(histories: Histories, names: string[]): (number | null)[] {
  const lists = names.map((name) => histories.values(name));
  return histories.times.map((_, index) => {
    const known = lists.map((list) => list[index]).filter((value): value is number => typeof value === "number");
    return known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0);
  });
}
