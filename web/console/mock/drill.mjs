// A drill that goes its way by the clock: killed, detected, lease ended, claimed, cut, replayed, served, all back.

import { bootMs, noise } from "./world.mjs";

const STEPS = { detected: 620, lease_ended: 840, claimed: 905, cut: 990, replayed: 1900, serving: 1980 };
const DOWN_MS = 3000;
const REPLAY_BYTES = 61_000_000;

const COMMON = {
  before_ms: { min: 0, max: 60_000, default: 2000, unit: "ms", meaning: "Traffic before the fault." },
  threads: { min: 1, max: 16, default: 4, unit: null, meaning: "Clients; every second one searches the servers' memory itself." },
  rate: { min: 1, max: 20_000, default: 2000, unit: "operations/s", meaning: "Operations a second, all clients together." },
  keep: { default: false, meaning: "The drill's entries stay in the store; without it a drill that passes removes them." },
};
const lasting = (min) => ({ down_ms: { min, max: 60_000, default: 3000, unit: "ms", meaning: "How long it lasts." }, ...COMMON });

export const KINDS = [
  { kind: "kill", meaning: "kill -9, and nobody in its place for a while.", parameters: lasting(0) },
  { kind: "stop", meaning: "SIGSTOP past its lease, then SIGCONT: it must not be believed.", parameters: lasting(100) },
  { kind: "restart", meaning: "An ordered stop and a new start.", parameters: COMMON },
  { kind: "partition", meaning: "Cut off from clients, peers and the coordinator, then let back.", parameters: lasting(100) },
  { kind: "partition-in", meaning: "Cut off one way: nothing that others send reaches it, and what it sends arrives.", parameters: lasting(100) },
  { kind: "partition-out", meaning: "Cut off one way: it takes what others send, and nothing that it sends arrives.", parameters: lasting(100) },
  { kind: "slow-disk", meaning: "Each write and sync of its logs takes longer: writes wait, reads do not, nobody takes over.", parameters: { ...lasting(100), delay_ms: { min: 1, max: 2000, default: 100, unit: "ms", meaning: "How much longer each write and sync of the node's logs takes." } } },
];

export class Drill {
  constructor(world, id, kind, node, now) {
    Object.assign(this, { world, id, kind, node, begun: now, injected: now + 1000, ended: null, halted: false, told: 0 });
    this.pairs = [1, 2, 3, 4, 5, 6].filter((pair) => (pair - 1) % 3 === node);
    this.isUnderWay = true;
    this.incident = { dead: String(9007199254740993n + BigInt(node)), node, detected_ms: 0, lease_seen_ms: 0, all_back_ms: null, shares: this.pairs.map((pair, index) => ({ pair, survivor: null, survivor_node: this.survivor(index), claimed_ms: 0, cut_ms: 0, replayed_ms: 0, replayed_bytes: 0, serving_ms: 0 })) };
  }

  survivor(index) {
    return [0, 1, 2].filter((node) => node !== this.node)[index % 2];
  }

  since(now = Date.now()) {
    return now - this.injected;
  }

  ownerOf(pair, home) {
    if (home !== this.node || this.halted) return home;
    const since = this.since();
    if (since < 0 || since > 60_000) return home;
    return since >= STEPS.serving ? this.survivor(this.pairs.indexOf(pair)) : null;
  }

  stateOf(node) {
    const since = this.since();
    return node === this.node && since >= 0 && since < DOWN_MS && !this.halted ? "down" : "serving";
  }

  recoveries(now) {
    const since = this.since(now);
    if (this.halted || since < STEPS.claimed || since > STEPS.serving) return [];
    const part = Math.min(1, Math.max(0, (since - STEPS.cut) / (STEPS.replayed - STEPS.cut)));
    return this.pairs.map((pair, index) => ({ pair, node: this.survivor(index), stage: since < STEPS.cut ? "cut" : "logs", bytes_done: Math.round(part * REPLAY_BYTES), bytes_total: REPLAY_BYTES, bytes_per_second: 67_000_000 }));
  }

  tick(now) {
    const since = this.since(now);
    if (this.halted || !this.isUnderWay) return;
    if (since >= 0 && this.told === 0) {
      this.told = 1;
      this.world.event("drill", "warning", this.node, `A drill kills node ${this.node}.`, now);
    }
    if (since >= STEPS.detected && this.told === 1) {
      this.told = 2;
      this.world.incidents.push(this.incident);
      this.world.event("incident", "critical", this.survivor(0), `Node ${this.node} is dead: its lease was not renewed.`, now);
    }
    this.fillIncident(since);
    if (since >= STEPS.serving && this.told === 2) {
      this.told = 3;
      for (const [index, pair] of this.pairs.entries()) this.world.event("takeover", "warning", this.survivor(index), `Node ${this.survivor(index)} serves pair ${pair}.`, now);
    }
    if (since >= 9000) {
      this.isUnderWay = false;
      this.ended = now;
      this.world.event("drill", "info", this.node, "The drill passed: nothing acknowledged was lost.", now);
    }
  }

  fillIncident(since) {
    const boot = bootMs(this.injected);
    const when = (step) => (since >= STEPS[step] ? boot + STEPS[step] : 0);
    this.incident.detected_ms = when("detected");
    this.incident.lease_seen_ms = when("lease_ended");
    for (const [index, share] of this.incident.shares.entries()) {
      const late = (value) => (value === 0 ? 0 : value + index * 90);
      Object.assign(share, { claimed_ms: late(when("claimed")), cut_ms: late(when("cut")), replayed_ms: late(when("replayed")), serving_ms: late(when("serving")) });
      share.replayed_bytes = share.replayed_ms ? REPLAY_BYTES : 0;
      share.survivor = share.claimed_ms ? String(9007199254740993n + BigInt(share.survivor_node)) : null;
    }
    if (since >= STEPS.serving + 90) this.incident.all_back_ms = boot + STEPS.serving + 90;
  }

  get state() {
    if (this.halted) return "halted";
    const since = this.since();
    if (since < DOWN_MS) return "running";
    if (since < 5500) return "healing";
    return since < 9000 ? "verifying" : "passed";
  }

  document(now) {
    const since = this.since(now);
    const timeline = [];
    const add = (name, at, pair = null) => since >= at && timeline.push({ name, at_ms: 1000 + at, pair });
    add("injected", 0);
    add("detected", STEPS.detected);
    add("lease_ended", STEPS.lease_ended);
    for (const step of ["claimed", "cut", "replayed", "serving"]) this.pairs.forEach((pair, index) => add(step, STEPS[step] + index * 90, pair));
    add("all_back", STEPS.serving + 90);
    add("node_back", DOWN_MS + 400);
    const lane = [];
    for (let at = 0; at <= Math.min(since + 1000, 8000); at += 200) {
      const isDown = at >= 1000 && at < 1000 + STEPS.serving;
      // A few are always on their way.
      lane.push({ at_ms: at, attempted: 404, succeeded: isDown ? 265 : 400, failed: isDown ? 135 : 0, p99_us: isDown ? 48_000 : 1900 + noise("lane", at) * 600 });
    }
    return { id: this.id, kind: this.kind, node: this.node, runner: this.survivor(0), state: this.state, waits_for: null, begun_unix_ms: this.begun, ended_unix_ms: this.ended, timeline, lane, who: "admin", halted_by: this.halted ? "admin" : null, report: this.state === "passed" ? this.report() : null };
  }

  report() {
    return {
      verdict: "PASS", reasons: [], fault: this.kind, node: this.node, writes_during_fault: 1884, acknowledged: 9120, found: 9120, lost: 0, stale: 0, phantom: 0,
      not_linearizable: 0, undecided: 0, histories: 2400, unknown: 3, refused: 41, operations: 18_212, unavailable_ms_max: 2070, unavailable_ms_p99: 2010,
      detected_ms: STEPS.detected, lease_ended_ms: STEPS.lease_ended, claimed_ms: STEPS.claimed, first_served_ms: STEPS.serving, served_ms: STEPS.serving + 90, all_back_ms: STEPS.serving + 90, replayed_bytes: REPLAY_BYTES * 2,
      ways: { one_sided: { found: 9120, lost: 0, stale: 0, phantom: 0 }, server: { found: 9120, lost: 0, stale: 0, phantom: 0 }, scan: { found: 9120, lost: 0, stale: 0, phantom: 0 } },
      wrong: [], slowest: [{ key: "drill/00f1\\x00a", what: "put", ms: 2070 }, { key: "drill/0a02\\x00b", what: "get", ms: 2010 }],
    };
  }
}

/** One that waits for its begin. */
export const beginning = (id, kind, node, now) => ({
  id, kind, node, runner: [0, 1, 2].find((one) => one !== node), state: "beginning", waits_for: "the agent at 10.0.0.2:7400", begun_unix_ms: now, ended_unix_ms: null,
  timeline: [], lane: [], who: "admin", halted_by: null, report: null,
});

export function preview(world, kind, node, delayMs) {
  const pairs = [1, 2, 3, 4, 5, 6].filter((pair) => world.ownerOf(pair) === node);
  const mine = world.meganodes.filter((one) => pairs.includes(one.pair));
  const entries = mine.reduce((sum, one) => sum + one.entries, 0);
  const all = world.meganodes.reduce((sum, one) => sum + one.entries, 0);
  return {
    node, kind, pairs, entries, key_share: all === 0 ? 0 : entries / all, survivors: [0, 1, 2].filter((one) => one !== node), confirm: `node-${node}`,
    revision: `${kind} ${node} ${delayMs}: ${pairs.join()}`,
    sentence: kind === "slow-disk"
      ? `Node ${node} owns ${pairs.length} pairs. Their keys can be read; each write of them waits ${delayMs} ms longer, until the fault is taken back. Nobody takes over.`
      : `Node ${node} owns ${pairs.length} pairs. Their keys are not available until its lease ends and the others have replayed its logs: about 2 s.`,
  };
}
