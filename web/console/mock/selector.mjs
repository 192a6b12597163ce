// Pairs of client and server, whose latencies wander so that decisions turn now and then.

import { head, missingOf } from "./documents.mjs";
import { noise, wave } from "./world.mjs";

const CLIENTS = [
  { client: "9007199254740997", client_name: "4121@loader", transport: "shm", policy: "adaptive" },
  { client: "9007199254741001", client_name: "web-frontend-1", transport: "tcp", policy: "adaptive" },
  { client: "9007199254741005", client_name: "web-frontend-2", transport: "tcp", policy: "paper" },
  { client: "9007199254741009", client_name: "7730@reporting", transport: "verbs", policy: "fixed" },
  // one that is told who searches has no estimates
  { client: "9007199254741013", client_name: "backup", transport: "tcp", policy: "server" },
  // one that has reported nothing for a while
  { client: "9007199254741017", client_name: "batch-night", transport: "tcp", policy: "adaptive", silentMs: 9000 },
];

function sample(client, node, now, exploration) {
  const name = `${client.client}/${node}`;
  const rtt = 9_000 + noise(name) * 3000;
  const l_r = rtt + Math.max(300, wave(`${name}r`, now, 4200));
  const l_s = rtt + Math.max(600, wave(`${name}s`, now, 17_000) + 9000 * Math.sin(now / 23_000 + noise(name) * 6));
  const m = 3.6 + noise(name, "m") * 0.8;
  const [server, oneSided] = [l_s - rtt, m * (l_r - rtt)];
  const lean = 1 / (1 + Math.exp((oneSided - server) / 3500));
  return { rtt, l_r, l_s, m, server, oneSided, share: Math.min(1 - exploration, Math.max(exploration, lean)), searches: wave(`${name}n`, now, 12_000) };
}

function without(client, node, now, world) {
  return {
    ...client, node, age_ms: 400, settings_revision: world.tuning.revision, searches_per_second: 220, one_sided_share: 0, ratio_10s: 0,
    l_s_ns: null, l_r_ns: null, rtt_ns: null, m: null, one_sided_ns: null, queue_estimate_ns: null,
    decision: { path: "server", server_side_ns: null, one_sided_side_ns: null, sentence: "server-side: the client was told so" },
    reasons: { estimate: 0, exploration: 0, fixed_share: 220, not_enough_samples: 0, idle_reset: 0, not_registered: 0, not_permitted: 0, not_trusted: 0 },
    cache_hits_per_second: 0, cache_hit_share: null, reads_per_search: null,
    retries: { torn: 0, stale: 0, fence: 0, slow: 0, watermark: 0, trust: 0, other: 0 }, fallbacks_per_second: 0, in_hand: 2,
  };
}

/** A node says nothing of what a client counts that has not reported for a while. */
function silenced(pair) {
  const none = (rates) => Object.fromEntries(Object.keys(rates).map((name) => [name, null]));
  return {
    ...pair, searches_per_second: null, one_sided_share: null, ratio_10s: null, cache_hits_per_second: null, cache_hit_share: null,
    reads_per_search: null, fallbacks_per_second: null, reasons: none(pair.reasons), retries: none(pair.retries),
    decision: { ...pair.decision, path: null, sentence: "it is silent: where it searches now is not known" },
  };
}

function pair(world, { silentMs = 0, ...client }, node, now) {
  if (client.policy === "server") return without(client, node, now, world);
  if (silentMs > 0) {
    const said = pair(world, client, node, now);
    return silenced({ ...said, age_ms: said.age_ms + silentMs });
  }
  const at = sample(client, node, now, world.tuning.number("client_selector_exploration"));
  const isServer = at.server < at.oneSided;
  const gap = Math.abs(at.server - at.oneSided) / 1000;
  return {
    ...client, node, age_ms: 300 + Math.floor(noise(node, client.client, Math.floor(now / 1000)) * 700), settings_revision: world.tuning.revision,
    searches_per_second: at.searches, one_sided_share: at.share, ratio_10s: at.share, l_s_ns: at.l_s, l_r_ns: at.l_r, rtt_ns: at.rtt, m: at.m,
    one_sided_ns: at.m * at.l_r, queue_estimate_ns: at.server,
    decision: {
      path: isServer ? "server" : "one_sided", server_side_ns: at.server, one_sided_side_ns: at.oneSided,
      sentence: `${isServer ? "server-side" : "one-sided"} now, ${gap.toFixed(gap < 10 ? 1 : 0)} us cheaper`,
    },
    reasons: { estimate: at.searches * 0.97, exploration: at.searches * 0.01, fixed_share: 0, not_enough_samples: at.searches * 0.01, idle_reset: 0, not_registered: 0, not_permitted: 0, not_trusted: at.searches * 0.004 },
    cache_hits_per_second: at.searches * at.share * 2.4, cache_hit_share: 0.68, reads_per_search: at.m,
    retries: { torn: 2.1, stale: 0.4, fence: 0.2, slow: 0, watermark: 3.7, trust: 0, other: 0 }, fallbacks_per_second: 0.6, in_hand: 16,
  };
}

export function pairs(world, now) {
  const nodes = world.scenario === "missing" ? [0, 1] : [0, 1, 2];
  const list = world.isEmpty ? [] : CLIENTS.flatMap((client) => nodes.filter((node) => world.stateOf(node) === "serving").map((node) => pair(world, client, node, now)));
  return head(now, { pairs: list, missing: missingOf(world), clients_dropped: 0 });
}

export function series(world, now, clientId, node, seconds) {
  const client = CLIENTS.find((one) => one.client === clientId);
  if (!client) return null;
  const last = Math.floor(now / 1000) * 1000;
  const times = Array.from({ length: seconds }, (_, index) => last - (seconds - 1 - index) * 1000);
  const at = times.map((time) => sample(client, node, time, world.tuning.numberAt("client_selector_exploration", time)));
  // a client without estimates has none of these; of another one, a second is not known now and then
  const list = (read) => at.map((one, index) => (client.policy === "server" ? null : index % 37 === 5 ? null : read(one)));
  return head(now, {
    client: clientId, node, step_ms: 1000, times_unix_ms: times, marks: world.tuning.marks(times[0]),
    series: {
      l_s_ns: list((one) => one.l_s), l_r_ns: list((one) => one.l_r), rtt_ns: list((one) => one.rtt), m: list((one) => one.m),
      one_sided_share: list((one) => one.share), searches_per_second: list((one) => one.searches), queue_estimate_ns: list((one) => one.server),
      one_sided_ns: list((one) => one.m * one.l_r), cache_hit_share: list(() => 0.68), fallbacks_per_second: list(() => 0.6),
    },
  });
}
