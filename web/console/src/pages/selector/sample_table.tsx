// The recorded seconds as rows: both sides, and what each m decides.

import type { Mark } from "../../api/types";
import { Figure } from "../../parts/figure";
import { clockTime, nanoseconds, perSecond, share } from "../../parts/format";
import { Table } from "../../parts/table";
import { isServerSide, marked, type Sample } from "./samples";

const side = (isServer: boolean): string => (isServer ? "server" : "one-sided");

export function SampleTable({ samples, marks, m }: { samples: Sample[]; marks: Mark[]; m: number | null }) {
  const changes = new Map(marked(samples, marks).map(({ sample, mark }) => [sample.at, mark]));
  return (
    <div class="twin">
      <Table
        caption="Recorded seconds" rows={[...samples].reverse()} rowKey={(sample) => sample.at}
        columns={[
          { name: "time", cell: (sample) => clockTime(sample.at) },
          { name: "l_s − RTT", isNumber: true, cell: (sample) => <Figure value={nanoseconds(sample.server)} /> },
          { name: "l_r − RTT", isNumber: true, cell: (sample) => <Figure value={nanoseconds(sample.read)} /> },
          { name: "m", isNumber: true, cell: (sample) => sample.m.toFixed(1) },
          { name: "m measured decides", cell: (sample) => side(isServerSide(sample, sample.m)) },
          { name: m === null ? "m shown decides" : `m ${m.toFixed(1)} decides`, cell: (sample) => (m === null ? "–" : side(isServerSide(sample, m))) },
          { name: "one-sided", isNumber: true, cell: (sample) => <Figure value={share(sample.share)} /> },
          { name: "searches", isNumber: true, cell: (sample) => <Figure value={perSecond(sample.searches)} /> },
          { name: "settings changed", cell: (sample) => changes.get(sample.at)?.names.join(", ") ?? "" },
        ]}
      />
    </div>
  );
}
