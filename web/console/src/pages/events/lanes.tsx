// A lane for each kind of event; signs differ by severity in form, too.

import type { EventRow } from "../../api/types";
import { clockTime, plural } from "../../parts/format";

export function Lanes({ events }: { events: EventRow[] }) {
  const kinds = [...new Set(events.map((event) => event.kind))].sort();
  const [first, last] = [events[events.length - 1]!.at_unix_ms, events[0]!.at_unix_ms];
  const width = Math.max(1000, last - first);
  return (
    <div class="lanes" role="img" aria-label={`From ${clockTime(first)} to ${clockTime(last)}: ${kinds.map((kind) => plural(events.filter((event) => event.kind === kind).length, kind.replaceAll("_", " "))).join(", ")}`}>
      {kinds.map((kind) => (
        <div key={kind} class="gantt-row event-lane">
          <span class="gantt-name">{kind.replaceAll("_", " ")}</span>
          <span class="gantt-track">
            {events.filter((event) => event.kind === kind).map((event) => (
              <span
                key={event.id} class={`event-sign event-${event.severity}`} style={{ left: `${1 + ((event.at_unix_ms - first) / width) * 98}%` }}
                title={`${clockTime(event.at_unix_ms)} node ${event.node}: ${event.text}`}
              />
            ))}
          </span>
        </div>
      ))}
      <div class="row row-between quiet lane-ends"><span>{clockTime(first)}</span><span>{clockTime(last)}</span></div>
    </div>
  );
}
