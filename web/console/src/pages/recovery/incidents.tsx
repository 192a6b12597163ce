// Deaths that the cluster remembers: who took over which pair, and how long each step took.

import type { Incident, RecoveriesDocument } from "../../api/types";
import { Gantt, GanttTable } from "../../parts/gantt";
import { bytes, duration, inWords, plural } from "../../parts/format";
import { incidentRows } from "./timeline";

export function Incidents({ document }: { document: RecoveriesDocument }) {
  const newest = [...document.incidents].sort((a, b) => b.detected_ms - a.detected_ms);
  return (
    <div class="stack">
      {newest.map((incident, index) => (
        <details key={`${incident.dead} ${incident.detected_ms}`} open={index === 0}>
          <summary>{summary(incident, document.now_boottime_ms)}</summary>
          <One incident={incident} now={document.now_boottime_ms} />
        </details>
      ))}
    </div>
  );
}

function summary(incident: Incident, now: number): string {
  const what = incident.node === null ? "Pairs were nobody's" : `Node ${incident.node} died`;
  const pairs = plural(incident.shares.length, "pair");
  const end = incident.all_back_ms ? `all back after ${duration(incident.all_back_ms - incident.detected_ms)}` : "not all back yet";
  return `${what} ${duration(now - incident.detected_ms)} ago: ${pairs}, ${end}`;
}

/** A survivor that has started anew since has another incarnation: nobody tells which node it was. */
function survivorOf({ survivor, survivor_node: node, serving_ms: serving }: Incident["shares"][number]): string {
  if (node !== null) return `node ${node}`;
  return survivor !== null || serving > 0 ? "a node whose life of then is over" : "nobody yet";
}

function One({ incident, now }: { incident: Incident; now: number }) {
  const { rows, to, moments } = incidentRows(incident, now);
  const replayed = incident.shares.reduce((sum, share) => sum + share.replayed_bytes, 0);
  return (
    <div class="stack">
      <Gantt title="Incident" rows={rows} from={0} to={to} />
      <p class="quiet">
        Replayed: {inWords(bytes(replayed))}. {incident.shares.map((share) => `Pair ${share.pair}: ${survivorOf(share)}`).join("; ")}.
      </p>
      <details><summary>Figures</summary><div class="twin"><GanttTable title="Incident" rows={moments} since="after it was detected" /></div></details>
    </div>
  );
}
