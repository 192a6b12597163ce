// Nodes & regions: processes with their memory and leases, the pairs that they own, and who owned them before.

import type { NodesDocument, RegionsDocument } from "../../api/types";
import { PageFrame } from "../../parts/page";
import { Panel } from "../../parts/panel";
import { TwinButton } from "../../parts/twin";
import { useTopic } from "../../state/live";
import { useResource } from "../../state/resource";
import { BalancePanel } from "./balance";
import { DrainsPanel } from "./drains";
import { MemoryBars } from "./memory";
import { MovesPanel } from "./moves";
import { AddressTable, NodeTable } from "./node_table";
import { Owners } from "./owners";
import { PairTable } from "./pair_table";

export function Nodes() {
  const nodes = useResource<NodesDocument>("nodes", 1000);
  const regions = useResource<RegionsDocument>("regions", 2000);
  const recoveries = useTopic("recoveries");
  return (
    <PageFrame title="Nodes & regions" says="Processes with their memory and leases, and who owns which pair.">
      <Panel title="Nodes" source={nodes}>{nodes.data && <NodeTable nodes={nodes.data.nodes} isStale={nodes.isStale} />}</Panel>
      <DrainsPanel />
      <BalancePanel />
      <Panel title="Memory" window="of each node's limit" source={nodes} saysState={false}>{nodes.data && <MemoryBars nodes={nodes.data.nodes} />}</Panel>
      <Panel title="Owners over time" window="pairs that changed hands; others stayed" source={recoveries} saysState={false} actions={(recoveries.data?.incidents.length ?? 0) > 0 && <TwinButton name="owners" of="the owners" />}>
        {recoveries.data && <Owners document={recoveries.data} regions={regions.data?.regions ?? []} />}
      </Panel>
      <MovesPanel nodes={nodes.data?.nodes ?? []} regions={regions.data?.regions ?? []} />
      <Panel title="Addresses and pages" source={nodes} saysState={false}>{nodes.data && <AddressTable nodes={nodes.data.nodes} />}</Panel>
      <Panel title="Pairs and regions" window="a pair is a node region and an extent region" source={regions}>
        {regions.data && <PairTable regions={regions.data.regions} isStale={regions.isStale} />}
      </Panel>
    </PageFrame>
  );
}
