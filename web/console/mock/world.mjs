// A cluster that exists in memory only: three nodes, meganodes that fill and split, load that rises and falls.
// It moves with the time that it is given, so that a page over it moves as over a real cluster.

const WORDS = "amber anchor apple arrow autumn basin beacon birch bridge cabin candle canyon cedar cloud copper coral " +
  "cotton crane dawn delta desert dune eagle ember engine falcon fern field flame forest garden glacier grain granite " +
  "harbor hazel hill honey island ivory jasper jungle kettle ladder lantern lemon linen maple marble meadow mirror " +
  "needle nickel north oasis ocean olive orbit orchard otter paper pearl pebble pepper pine planet plum prairie quartz " +
  "raven reef ridge river robin saddle sage salt sand silver sky slate snow spruce stone storm summit swan thistle " +
  "thunder timber tulip valley velvet violet walnut water wheat willow winter wolf yarrow zenith zephyr";

export const words = WORDS.split(" ");
const hexOf = (text) => Buffer.from(text).toString("hex");
export const key = (text) => ({ text, hex: hexOf(text) });
export const bootMs = (now) => Math.round(now - 1_700_000_000_000);

/** A number from 0 to 1 that depends on its arguments alone. */
export function noise(...parts) {
  let hash = 2166136261;
  for (const part of parts) for (const char of String(part)) hash = Math.imul(hash ^ char.charCodeAt(0), 16777619);
  hash ^= hash >>> 15;
  hash = Math.imul(hash, 2246822507);
  hash ^= hash >>> 13;
  return (hash >>> 0) / 2 ** 32;
}

/** Load at a time: a slow wave, a faster one, and noise. */
export const wave = (name, now, mean) => {
  const t = now / 1000;
  const phase = noise(name) * 6.28;
  return mean * (1 + 0.25 * Math.sin(t / 47 + phase) + 0.1 * Math.sin(t / 7.3 + phase * 2) + 0.12 * (noise(name, Math.floor(t)) - 0.5));
};

export class World {
  constructor(now = Date.now()) {
    this.begun = now;
    this.scenario = "normal";
    this.events = [];
    this.nextEvent = 1;
    this.drill = null;
    this.runs = [];
    this.incidents = [];
    this.splitsFinished = 37;
    this.meganodes = words.filter((_, index) => index % 2 === 0).map((word, index) => this.meganode(index, word));
    this.nextSlot = this.meganodes.length;
    this.lastSplit = now;
    for (let back = 40; back > 0; back -= 1) this.pastEvent(now - back * 31_000, back);
  }

  meganode(index, low) {
    return { slot: index, pair: (index % 6) + 1, low: index === 0 ? "" : low, entries: 2000 + Math.floor(noise("entries", index) * 9000) };
  }

  pastEvent(at, back) {
    if (back === 40) return this.event("member_joined", "info", 1, "Node 1 joined.", at);
    if (back % 9 === 0) return this.event("checkpoint", "info", back % 3, `A checkpoint of pair ${(back % 6) + 1} is complete: 48 MiB in 0.6 s.`, at);
    if (back === 17) return this.event("read_only", "warning", 2, "Writes are refused: the disk is full. They were taken again after 4 s.", at);
    return this.event("split", "info", back % 3, `Meganode ${(back % 6) + 1}.${back} was split at "${words[back % words.length]}".`, at);
  }

  event(kind, severity, node, text, at = Date.now(), details = {}) {
    this.events.push({ id: `${node}-${this.nextEvent++}`, at_unix_ms: at, node, kind, severity, text, details });
    if (this.events.length > 2000) this.events.shift();
  }

  get isEmpty() {
    return this.scenario === "empty";
  }

  /** Moves the world on: entries come, a meganode splits now and then, a drill goes its way. */
  tick(now) {
    if (!this.isEmpty) {
      for (const one of this.meganodes) one.entries += Math.floor(noise("grow", one.slot, Math.floor(now / 1000)) * 6);
      if (now - this.lastSplit > 20_000) this.split(now);
    }
    this.drill?.tick(now);
  }

  split(now) {
    this.lastSplit = now;
    const widest = [...this.meganodes].sort((a, b) => b.entries - a.entries)[0];
    const index = this.meganodes.indexOf(widest);
    const middle = `${widest.low || "a"}m`;
    const half = Math.floor(widest.entries / 2);
    widest.entries -= half;
    const right = { slot: this.nextSlot++, pair: widest.pair, low: middle, entries: half };
    this.meganodes.splice(index + 1, 0, right);
    this.splitsFinished += 1;
    this.event("split", "info", this.ownerOf(right.pair), `Meganode ${widest.pair}.${widest.slot} was split at "${middle}".`, now);
  }

  /** Who owns a pair now; null while nobody does. */
  ownerOf(pair) {
    const home = (pair - 1) % 3;
    return this.drill ? this.drill.ownerOf(pair, home) : home;
  }

  stateOf(node) {
    return this.drill?.stateOf(node) ?? "serving";
  }
}
