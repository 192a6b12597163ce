// Buckets without keys, as those get them who do not read entries: each is known by its number alone.

import type { BucketsDocument, Key } from "../../api/types";

const numbered = (index: number): Key => ({ text: `range ${index + 1}`, hex: index.toString(16).padStart(8, "0") });

/** The same with a number for each key that was left out. */
export function withPlaces(document: BucketsDocument): BucketsDocument {
  if (!document.keys_left_out) return document;
  const buckets = document.buckets.map((bucket, index) => ({ ...bucket, low: numbered(index), high: null }));
  return { ...document, low: numbered(0), high: null, buckets };
}
