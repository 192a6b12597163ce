// Recovery & drills: what is being recovered now, a fault on purpose, and what past faults did.

import type { DrillRun, DrillsDocument, RecoveriesDocument } from "../../api/types";
import { PageFrame } from "../../parts/page";
import { Panel } from "../../parts/panel";
import { Empty } from "../../parts/states";
import { useTopic } from "../../state/live";
import { useResource } from "../../state/resource";
import { useParam } from "../../state/url";
import { DrillForm } from "./form";
import { Incidents } from "./incidents";
import { RunView } from "./run";
import { isRunning } from "./running";
import { Runs } from "./runs";
import { UnderWay } from "./under_way";

export function Recovery() {
  const recoveries = useTopic("recoveries");
  const drills = useResource<DrillsDocument>("drills", 1000);
  const chosen = useRun(drills.data);
  return (
    <PageFrame title="Recovery & drills" says="Who takes over a dead node's pairs, how far they are, and a rehearsal of it.">
      <Panel title="Recoveries under way" source={recoveries}>
        {recoveries.data && <UnderWay rows={recoveries.data.under_way} />}
      </Panel>
      <Panel title="Drill" window="a fault on purpose, under load, with a proof that nothing acknowledged was lost" source={drills}>
        {drills.data && <DrillForm drills={drills.data} onBegun={drills.reload} />}
      </Panel>
      {chosen && drills.data && <RunView key={chosen.id} run={chosen} source={drills} nowUnixMs={drills.data.at_unix_ms + drills.ageMs} underWay={recoveries.data?.under_way ?? []} onChange={drills.reload} />}
      {drills.data && drills.data.runs.length > 0 && <Panel title="Drills so far" source={drills}><Runs runs={drills.data.runs} chosen={chosen} /></Panel>}
      <Panel title="Incidents" window="times count from when the death was detected" source={recoveries}>
        {recoveries.data && <IncidentList document={recoveries.data} />}
      </Panel>
    </PageFrame>
  );
}

/** The run of the URL, else one that runs, else the newest. */
function useRun(drills: DrillsDocument | null): DrillRun | null {
  const id = useParam("run");
  const runs = [...(drills?.runs ?? [])].sort((a, b) => b.begun_unix_ms - a.begun_unix_ms);
  return runs.find((run) => run.id === id) ?? runs.find(isRunning) ?? runs[0] ?? null;
}

function IncidentList({ document }: { document: RecoveriesDocument }) {
  if (document.incidents.length === 0) return <Empty command="cell drill run kill --node 1 --dir DIR">No node has died in this cluster's memory. To see one:</Empty>;
  return <Incidents document={document} />;
}
