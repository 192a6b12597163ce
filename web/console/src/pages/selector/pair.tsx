// One client and one server: the decision now, how it came to be, and what another m would have decided.

import type { SelectorPair, SelectorSeries } from "../../api/types";
import { Figure, Tile, Tiles } from "../../parts/figure";
import { age, digitsOf, inWords, nanoseconds, perSecond, plural, share } from "../../parts/format";
import { Panel } from "../../parts/panel";
import { useResource, type Resource } from "../../state/resource";
import { Gauge } from "./gauge";
import { History } from "./history";
import { Phase } from "./phase";
import { TwinButton, useTwin } from "../../parts/twin";
import { useTriedM } from "./tried";
import { Replay } from "./replay";
import { SampleTable } from "./sample_table";
import { samplesOf } from "./samples";

export function PairView({ pair, ageMs, isStale }: { pair: SelectorPair; ageMs: number; isStale: boolean }) {
  const path = `selector/pairs/${encodeURIComponent(pair.client)}/${pair.node}/series`;
  const series = useResource<SelectorSeries>(`${path}?seconds=120`, 1000);
  const long = useResource<SelectorSeries>(`${path}?seconds=600`, 5000);
  const samples = samplesOf(series.data);
  const marks = series.data?.marks ?? [];
  const tried = useTriedM(pair.m);
  const [isTable] = useTwin("samples");
  const name = `${pair.client_name} and node ${pair.node}`;
  const isPaper = pair.policy === "paper";
  const notInForce = isPaper ? "" : "; not in force";
  return (
    <>
      <Panel title={`Now: ${name}`} id="now" window="moving averages, as the client reports them" source={{ data: {}, problem: null, ageMs, isStale }}>
        <Gauge pair={pair} />
        <Estimates pair={pair} />
        <PolicyNote policy={pair.policy} />
      </Panel>
      <div class="columns">
        <Panel title={isPaper ? "Where the decision turns" : "Where the paper's rule would turn"} id="turns" window={`one sample a second, last 120 s${notInForce}`} source={series} actions={<TwinButton name="samples" of="the samples" />}>
          {series.data && <Phase samples={samples} marks={marks} m={pair.m} tried={tried} />}
        </Panel>
        <Panel title={isPaper ? "What another m would decide" : "What the paper's rule would decide"} id="replay" window={`replay of the last 120 s, not a forecast${notInForce}`} source={series}>
          {series.data && <Replay samples={samples} marks={marks} m={pair.m} tried={tried} />}
        </Panel>
      </div>
      {isTable && <Panel title="Samples" window="newest first, last 120 s" source={series}><SampleTable samples={samples} marks={marks} m={tried.shown} /></Panel>}
      <Panel title="History" window="one point a second, last 10 min" source={long}>
        {long.data && <History series={long.data} />}
      </Panel>
      <Reasons pair={pair} source={{ data: {}, problem: null, ageMs, isStale }} />
    </>
  );
}

function Estimates({ pair }: { pair: SelectorPair }) {
  return (
    <Tiles narrow>
      <Tile name="l_s" value={nanoseconds(pair.l_s_ns)} window="search by the server" />
      <Tile name="l_r" value={nanoseconds(pair.l_r_ns)} window="one-sided read" />
      <Tile name="RTT" value={nanoseconds(pair.rtt_ns)} window="lowest read seen" />
      <Tile name="m" value={{ number: digitsOf(pair.m), unit: pair.m === null ? "" : "reads" }} window="a search, mean" />
      <Tile name="One-sided" value={share(pair.one_sided_share)} window="of searches, last second" note={inWords(perSecond(pair.searches_per_second))} />
    </Tiles>
  );
}

function PolicyNote({ policy }: { policy: string }) {
  const words: Record<string, string> = {
    paper: "The policy is paper: a search goes to the server if and only if the left side is smaller.",
    adaptive: "The policy is adaptive: it moves a share of the searches by what they cost all clients, which is what they take and the waits that they cause others.",
    fixed: "The policy is fixed: a set share goes to the server, whatever searches take.",
    client: "The policy is client: the client does all searches itself.",
    server: "The policy is server: the server does all searches.",
  };
  return <p class="quiet prose">{words[policy] ?? `The policy is ${policy}.`} <a href="/console/tuning?find=client_selector">Change its settings</a></p>;
}

type Row = [string, number | null];

function Reasons({ pair, source }: { pair: SelectorPair; source: Pick<Resource<object>, "data" | "problem" | "ageMs" | "isStale"> }) {
  const list = (record: Record<string, number | null>): Row[] => Object.entries(record).sort((a, b) => (b[1] ?? 0) - (a[1] ?? 0));
  return (
    <Panel title="Why, and what went wrong" id="reasons" window="a second, last second" source={source}>
      <div class="columns">
        <Bars title="Reasons of decisions" rows={list(pair.reasons)} />
        <Bars title="Reads that were tried again" rows={list(pair.retries)} />
        <dl class="facts">
          <dt>Reads a search</dt><dd>{digitsOf(pair.reads_per_search)}</dd>
          <dt>Cache hits</dt><dd><Figure value={share(pair.cache_hit_share)} />, <Figure value={perSecond(pair.cache_hits_per_second)} /></dd>
          <dt>Left to the server</dt><dd><Figure value={perSecond(pair.fallbacks_per_second)} /></dd>
          <dt>In hand</dt><dd>{plural(pair.in_hand, "operation")}</dd>
          <dt>Reported</dt><dd>{age(source.ageMs)}</dd>
        </dl>
      </div>
    </Panel>
  );
}

function Bars({ title, rows }: { title: string; rows: Row[] }) {
  const top = Math.max(1, ...rows.map(([, rate]) => rate ?? 0));
  return (
    <table class="bars">
      <caption>{title}</caption>
      <tbody>
        {rows.map(([name, rate]) => (
          <tr key={name}>
            <th scope="row">{name.replaceAll("_", " ")}</th>
            <td class="number"><Figure value={perSecond(rate)} /></td>
            <td class="bar-cell"><span class="bar" style={{ width: `${((rate ?? 0) / top) * 100}%` }} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
