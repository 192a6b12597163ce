// The bands as a table.

import type { Bucket, BucketsDocument } from "../../api/types";
import { Figure } from "../../parts/figure";
import { bytes, keyText, perSecond, share, shortened, whole } from "../../parts/format";
import { Table } from "../../parts/table";
import { urlWith } from "../../state/url";

/** Nobody reports the meganodes of a range: then nothing of it is zero. */
const ifTold = (bucket: Bucket, value: number): number | null => (bucket.meganodes === 0 ? null : value);

export function BucketTable({ document }: { document: BucketsDocument }) {
  return (
    <div class="twin twin-tall">
      <Table
        caption="Ranges of keys, in order" rows={document.buckets} rowKey={(bucket) => bucket.low.hex}
        columns={[
          { name: document.keys_left_out ? "range" : "from key", cell: (bucket) => <span class="mono">{shortened(keyText(bucket.low), 28)}</span> },
          {
            name: "meganode",
            cell: (bucket) => bucket.id
              ? <a href={urlWith({ meganode: bucket.id, tree_node: null })}>{bucket.id}</a>
              : document.keys_left_out ? `${bucket.meganodes} of them`
              : <a href={urlWith({ from: bucket.low.hex || null, to: bucket.high?.hex ?? null })}>{bucket.meganodes === 0 ? "not known" : `${bucket.meganodes} of them`}</a>,
          },
          { name: "owner", cell: (bucket) => (bucket.node === null ? "nobody" : `node ${bucket.node}`) },
          { name: "pair", isNumber: true, cell: (bucket) => bucket.pair ?? (bucket.meganodes > 1 ? "several" : "–") },
          { name: "entries", isNumber: true, cell: (bucket) => whole(ifTold(bucket, bucket.entries)) },
          { name: "size", isNumber: true, cell: (bucket) => <Figure value={bytes(ifTold(bucket, bucket.bytes))} /> },
          { name: "full", isNumber: true, cell: (bucket) => <Figure value={share(ifTold(bucket, bucket.fill))} /> },
          { name: "height", isNumber: true, cell: (bucket) => whole(ifTold(bucket, bucket.height)) },
          { name: "writes", isNumber: true, cell: (bucket) => <Figure value={perSecond(bucket.writes_per_second)} /> },
          { name: "reads", isNumber: true, cell: (bucket) => <Figure value={perSecond(bucket.reads_per_second)} /> },
          { name: "state", cell: (bucket) => bucket.state },
        ]}
      />
    </div>
  );
}
