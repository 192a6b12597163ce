// Routers above, meganodes below. Width is what was chosen, shade is how full, marks say what goes on.

import { inWords, plural, share } from "../../parts/format";
import type { Axis, Placed } from "./axis";

interface IcicleProps { axis: Axis; chosen: string | null; opened: string | null }

export function Icicle({ axis, chosen, opened }: IcicleProps) {
  return (
    <div class="band band-icicle" aria-hidden="true">
      {axis.routers.map(({ router }) => (
        <div key={router.id} class="router" title={`Router ${router.id} on node ${router.node}`}>
          router {router.id} · height {router.height} · {plural(router.entries, "entry", "entries")} · {inWords(share(router.fill))} full
        </div>
      ))}
      <div class="meganodes">
        {axis.buckets.map((place) => (
          <Meganode key={place.bucket.low.hex} place={place} isChosen={place.bucket.low.hex === chosen} isOpened={opened !== null && place.bucket.id === opened} />
        ))}
      </div>
    </div>
  );
}

function Meganode({ place, isChosen, isOpened }: { place: Placed; isChosen: boolean; isOpened: boolean }) {
  const { bucket, left, right } = place;
  const width = right - left;
  const classes = ["meganode", isChosen && "is-chosen", isOpened && "is-opened", bucket.node === null ? "is-unserved" : bucket.state === "not told" && "is-unreported"];
  return (
    <span class={classes.filter(Boolean).join(" ")} style={{ left: `${left * 100}%`, width: `${width * 100}%` }}>
      <span class="meganode-fill" style={{ height: `${Math.min(1, bucket.fill) * 100}%` }} />
      {width > 0.014 && <span class="meganode-height">{bucket.height}</span>}
      {bucket.meganodes > 1 && width > 0.03 && <span class="meganode-many">×{bucket.meganodes}</span>}
      {bucket.state === "splitting" && <span class="meganode-mark">⌃</span>}
      {bucket.state === "adopting" && <span class="meganode-mark">▸</span>}
    </span>
  );
}
