// What is under the pointer, or chosen by the arrows.

import type { Bucket } from "../../api/types";
import { bytes, count, inWords, keyText, perSecond, plural, share, shortened } from "../../parts/format";

/** What the pointer passes over is not read out; what the keys choose is. */
export function BucketCard({ bucket, hasKeys, isPointed }: { bucket: Bucket | null; hasKeys: boolean; isPointed: boolean }) {
  return <p class="bucket-card" role="status" aria-live={isPointed ? "off" : "polite"}>{bucket ? <Words bucket={bucket} hasKeys={hasKeys} /> : <Legend />}</p>;
}

const Legend = () => (
  <span class="quiet">Shade from below: how full. Number: height in levels. <b>⌃</b> splitting, <b>▸</b> adopting, <b>×3</b> three meganodes in one column, hatched red: nobody serves it, hatched grey: its node does not answer.</span>
);

function Words({ bucket, hasKeys }: { bucket: Bucket; hasKeys: boolean }) {
  const owner = bucket.node === null ? "served by nobody" : bucket.state === "not told" ? `node ${bucket.node}, which does not answer` : `node ${bucket.node}`;
  return (
    <>
      <b>{bucket.id ? `Meganode ${bucket.id}` : bucket.meganodes === 0 ? "Unknown meganodes" : plural(bucket.meganodes, "meganode")}</b> · {owner}
      {bucket.pair !== null && <>, pair {bucket.pair}</>}{hasKeys && <> · <span class="mono">{shortened(keyText(bucket.low), 24)}</span> to <span class="mono">{shortened(keyText(bucket.high), 24)}</span></>}
      {bucket.meganodes > 0 && <> · {inWords(count(bucket.entries))} entries, {inWords(bytes(bucket.bytes))} · {inWords(share(bucket.fill))} full, height {bucket.height} · writes {inWords(perSecond(bucket.writes_per_second))}, reads {inWords(perSecond(bucket.reads_per_second))}</>}
      {bucket.state !== "entries" && <> · {bucket.state}</>}
    </>
  );
}
