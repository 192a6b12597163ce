// Balance: who balances, what it has decided and why, and how each node stands beside the mean.

import type { BalanceDocument, BalanceNode } from "../../api/types";
import { Badge } from "../../parts/badge";
import { bytes, inWords } from "../../parts/format";
import { NodeName } from "../../parts/node_name";
import { Panel } from "../../parts/panel";
import { Table } from "../../parts/table";
import { useResource } from "../../state/resource";

const STEPS: Record<BalanceDocument["step"], ["ok" | "info" | "warning", string]> = {
  move: ["info", "a pair moves"], cancel: ["warning", "a move is cancelled"], rest: ["ok", "nothing is to be done"],
};

export function BalancePanel() {
  const balance = useResource<BalanceDocument>("balance", 2000);
  const document = balance.data;
  return (
    <Panel title="Balance" window="cell balance on and off switch it" source={balance}>
      {document && <Decision document={document} />}
      {document && document.nodes.length > 1 && (
        <Table
          caption="Nodes beside the mean" rows={document.nodes} rowKey={(row) => row.node}
          columns={[
            { name: "node", cell: (row) => <NodeName node={row.node} /> },
            { name: "pairs", isNumber: true, cell: (row) => row.pairs },
            { name: "bytes", isNumber: true, cell: (row) => inWords(bytes(row.bytes)) },
            { name: "of the mean", isNumber: true, cell: (row) => ofMean(row.bytes_percent) },
            { name: "load", isNumber: true, cell: (row) => `${(row.load_share * 100).toFixed(1)} %` },
            { name: "of the mean load", isNumber: true, cell: (row) => ofMean(row.load_percent) },
            { name: "how it stands", cell: (row) => <Standing row={row} /> },
          ]}
        />
      )}
    </Panel>
  );
}

function Decision({ document }: { document: BalanceDocument }) {
  const [level, words] = STEPS[document.step];
  const by = document.balancer === null ? "nobody balances" : <><NodeName node={document.balancer} /> balances</>;
  return (
    <p>
      <Badge level={document.on ? level : "warning"}>{document.on ? words : "off"}</Badge> {by}: {document.decision}
      {" "}<span class="quiet">Begun since its start: {begun(document)}.</span>
    </p>
  );
}

function begun({ moves }: BalanceDocument): string {
  const { above, below, drain, fresh, full, cancelled } = moves;
  const others = `${drain} for drains, ${fresh} for splits, ${full} from full nodes`;
  return `${above + below} moves for balance, ${others}; ${cancelled} cancelled`;
}

/** Of too little nobody has a part of the mean. */
function ofMean(percent: number | null): string {
  return percent === null ? "–" : `${percent} %`;
}

/** What is to be said besides the figures. */
function Standing({ row }: { row: BalanceNode }) {
  const rest = row.words.split("; ").slice(1).join("; ");
  const badges = <>{row.writes_wait && <Badge level="warning">no memory for puts</Badge>} {row.draining && <Badge level="info">drains</Badge>}</>;
  return <>{badges} <span class="quiet event-text">{rest}</span></>;
}
