// One tree node as a reader finds it: version, fences, keys, the right link.

import type { TreeNode } from "../../api/types";
import { age, keyText, shortened } from "../../parts/format";
import { Loading, ProblemNote, StaleNote } from "../../parts/states";
import { useResource } from "../../state/resource";
import { urlWith } from "../../state/url";

export function TreeNodeCard({ meganode, index }: { meganode: string; index: string }) {
  const node = useResource<TreeNode>(`tree/meganodes/${encodeURIComponent(meganode)}/nodes/${encodeURIComponent(index)}`, 2000);
  if (!node.data) return node.problem ? <ProblemNote problem={node.problem} /> : <Loading what="the tree node" />;
  const { data } = node;
  return (
    <section class={node.isStale ? "card is-stale" : "card"} aria-label={`Tree node ${index}`}>
      <h3>Tree node {data.index} <span class="panel-window">{age(node.ageMs)}</span></h3>
      {node.problem && <ProblemNote problem={node.problem} />}
      {node.isStale && !node.problem && <StaleNote ageMs={node.ageMs} />}
      <dl class="facts">
        <dt>Level</dt><dd>{data.level === 0 ? "0, a leaf" : data.level}</dd>
        <dt>Version</dt><dd>{String(data.version)}</dd>
        <dt>Low fence</dt><dd class="mono">{keyText(data.low)}</dd>
        <dt>High fence</dt><dd class="mono">{keyText(data.high)}</dd>
        <dt>Right link</dt>
        <dd>{data.right === null ? "none: the last of its level" : <a href={urlWith({ tree_node: data.right })}>tree node {data.right}</a>}</dd>
        <dt>Entries</dt><dd>{data.entries}{data.entries > data.keys.length && `, of which ${data.keys.length} are shown`}</dd>
      </dl>
      <ol class="key-list mono">{data.keys.map((key) => <li key={key.hex}>{shortened(keyText(key), 40)}</li>)}</ol>
    </section>
  );
}
