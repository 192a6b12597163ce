// The node that served this page is silent: what is known, and where else to look. Any node answers for all.

import type { NodeRow } from "../api/types";
import { age } from "../parts/format";
import { useNow } from "../state/clock";
import { connection, STALE_AFTER_MS, useTopic } from "../state/live";
import { useStore } from "../state/store";
import { usePlace } from "../state/url";

export function Unreachable() {
  const { heardAt, listensSince, problem } = useStore(connection);
  const status = useTopic("status");
  const { path, query } = usePlace();
  const now = useNow();
  const since = Math.max(heardAt ?? 0, listensSince);
  if (now - since <= STALE_AFTER_MS || problem?.isUnauthorised) return null;
  const others = (status.data?.nodes ?? []).filter((node) => node.node !== status.data?.answered_by && node.http);
  return (
    <div class="notice notice-critical" role="alert">
      <p>
        <strong>The node that served this page is silent.</strong>{" "}
        {problem?.detail} {heardAt === null ? "It has sent nothing yet." : `It was heard ${age(now - heardAt)}.`} The page goes on trying.
      </p>
      {others.length > 0 && <p>Next: every node serves this console. {others.map((node) => <Elsewhere key={node.node} node={node} place={query.size > 0 ? `${path}?${query}` : path} />)}</p>}
      {others.length === 0 && <p>Next: open the console of another node, or run <code>cell status</code>.</p>}
    </div>
  );
}

function Elsewhere({ node, place }: { node: NodeRow; place: string }) {
  return <><a href={`http://${node.http}${place}`}>Open it on node {node.node}</a>{" "}</>;
}
