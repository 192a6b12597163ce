// How full something is: a bar, and the share in figures.

import { inWords, share } from "./format";

/** A part that is not known has no bar: an empty one would say 0 %. */
export function Fill({ part }: { part: number | null | undefined }) {
  if (part === null || part === undefined) return <span class="quiet">not known</span>;
  return <span class="fill"><span class="fill-track"><span style={{ width: `${Math.min(1, part) * 100}%` }} /></span><span class="fill-share">{inWords(share(part))}</span></span>;
}
