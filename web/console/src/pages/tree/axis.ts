// Where each bucket stands on the key axis, 0 to 1. All three bands share it.

import { hierarchy, partition } from "d3-hierarchy";
import type { Bucket, BucketsDocument, RouterRow } from "../../api/types";
import type { Measure } from "./measure";

export interface Placed { bucket: Bucket; index: number; left: number; right: number }

export interface PlacedRouter { router: RouterRow; left: number; right: number }

export interface Axis { buckets: Placed[]; routers: PlacedRouter[] }

interface Item { bucket?: Bucket; router?: RouterRow; index: number; children?: Item[]; weight: number }

/** No bucket is thinner than this part of the axis, so that an empty meganode can be seen and chosen. */
const SHARE_MIN = 0.004;

/** The icicle: routers above, buckets below, in the order of keys. */
export function axisOf(document: BucketsDocument, measure: Measure): Axis {
  const sizes = document.buckets.map((bucket) => (measure === "bytes" ? bucket.bytes : bucket.entries));
  const least = Math.max(1, sizes.reduce((sum, size) => sum + size, 0) * SHARE_MIN);
  const leaves: Item[] = document.buckets.map((bucket, index) => ({ bucket, index, weight: Math.max(sizes[index] ?? 0, least) }));
  const router = document.routers[0];
  const root = hierarchy<Item>({ router, index: -1, weight: 0, children: leaves }).sum((item) => item.weight);
  const buckets: Placed[] = [];
  partition<Item>()(root).each((place) => {
    const { bucket, index } = place.data;
    if (bucket) buckets.push({ bucket, index, left: place.x0, right: place.x1 });
  });
  return { buckets, routers: document.routers.map((one) => ({ router: one, left: 0, right: 1 })) };
}

/** Neighbours with one owner, as one piece. */
export function owners(axis: Axis): { node: number | null; left: number; right: number }[] {
  const runs: { node: number | null; left: number; right: number }[] = [];
  for (const { bucket, left, right } of axis.buckets) {
    const last = runs[runs.length - 1];
    if (last && last.node === bucket.node) last.right = right;
    else runs.push({ node: bucket.node, left, right });
  }
  return runs;
}

export const at = (axis: Axis, x: number): Placed | null =>
  axis.buckets.find((one) => x >= one.left && x < one.right) ?? axis.buckets[axis.buckets.length - 1] ?? null;
