// Selector: who does the searches, the server or the client with one-sided reads, and why.

import { useRef } from "preact/hooks";
import type { SelectorDocument, SelectorPair } from "../../api/types";
import { PageFrame } from "../../parts/page";
import { Panel } from "../../parts/panel";
import { Empty } from "../../parts/states";
import { Segments } from "../../parts/choice";
import { STALE_AFTER_MS, useTopic } from "../../state/live";
import { setQuery, useParam } from "../../state/url";
import { Matrix, PairTable } from "./matrix";
import { PairView } from "./pair";
import { pairName } from "./pair_name";

export function Selector() {
  const topic = useTopic("selector");
  const chosen = useChosen(topic.data);
  const isTable = useParam("view") === "table";
  const chosenAgeMs = topic.ageMs + (chosen?.age_ms ?? 0);
  return (
    <PageFrame title="Selector" says="Who does the searches: the server, or the client with one-sided reads.">
      <Panel
        title="Clients and servers" window="share of one-sided searches, last second; as clients report it" source={topic}
        actions={<Segments
          label="View" value={isTable ? "table" : "matrix"} options={[["matrix", "Matrix"], ["table", "All figures"]] as const}
          onChange={(view) => setQuery({ view: view === "table" ? "table" : null })}
        />}
      >
        {topic.data && topic.data.pairs.length === 0 && <NoClients />}
        {topic.data && topic.data.pairs.length > 0 && (isTable
          ? <PairTable pairs={topic.data.pairs} chosen={chosen} />
          : <Matrix pairs={topic.data.pairs} chosen={chosen} />)}
        {(topic.data?.clients_dropped ?? 0) > 0 && <p class="quiet">{topic.data?.clients_dropped} clients more are not listed: the nodes keep a bounded number.</p>}
      </Panel>
      {topic.data && !chosen && topic.data.pairs.length > 0 && <Empty>The client of this address has reported nothing lately. Choose another one above.</Empty>}
      {chosen && <PairView key={pairName(chosen)} pair={chosen} ageMs={chosenAgeMs} isStale={chosenAgeMs > STALE_AFTER_MS} />}
    </PageFrame>
  );
}

/** The pair of the URL; without one, the busiest when the page was opened. */
function useChosen(document: SelectorDocument | null): SelectorPair | null {
  const name = useParam("pair");
  const pairs = document?.pairs ?? [];
  const first = useRef<string | null>(null);
  const wanted = name ?? first.current;
  const found = wanted === null ? undefined : pairs.find((pair) => pairName(pair) === wanted);
  if (found || name) return found ?? null;
  const busiest = [...pairs].sort((a, b) => (b.searches_per_second ?? -1) - (a.searches_per_second ?? -1) || pairName(a).localeCompare(pairName(b)))[0] ?? null;
  first.current = busiest && pairName(busiest);
  return busiest;
}

function NoClients() {
  return (
    <Empty command="cell bench ycsb --search auto --threads 4 --server HOST:PORT">
      No client has reported a search. Clients report once a second while they search. Start some:
    </Empty>
  );
}
