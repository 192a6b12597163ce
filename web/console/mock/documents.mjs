// The documents of the contract, made from the world.

import { bootMs, key, noise, wave, words } from "./world.mjs";

const MIB = 2 ** 20;
const TREE_NODES = 8192;

export const head = (now, more = {}) => ({ version: 1, at_unix_ms: now, age_ms: 140, ...more });

export const missingOf = (world) =>
  world.scenario === "missing" ? [{ node: 2, address: "127.0.0.1:7082", why: "no answer within 200 ms" }] : [];

const present = (world) => (world.scenario === "missing" ? [0, 1] : [0, 1, 2]);
const load = (world, name, now, mean) => (world.isEmpty ? 0 : Math.max(0, wave(name, now, mean)));
const pairsOf = (world, node) => [1, 2, 3, 4, 5, 6].filter((pair) => world.ownerOf(pair) === node);
const entriesOf = (world, pairs) =>
  world.isEmpty ? 0 : world.meganodes.filter((one) => pairs.includes(one.pair)).reduce((sum, one) => sum + one.entries, 0);

function nodeRow(world, node, now) {
  const state = world.stateOf(node);
  const pairs = pairsOf(world, node);
  return {
    node, incarnation: String(9007199254740993n + BigInt(node)), address: `127.0.0.1:${7000 + node}`, http: `127.0.0.1:${7080 + node}`,
    state, state_detail: state === "serving" ? null : "the process was killed", uptime_ms: now - world.begun + 7_340_000,
    lease_remaining_ms: state === "serving" ? 380 + Math.floor(noise("lease", node, Math.floor(now / 1000)) * 110) : 0,
    connections: world.isEmpty ? 2 : 14 + node, cpu_cores_used: Math.max(0.02, load(world, `cpu${node}`, now, 0.7)),
    memory: { limit_bytes: 8192 * MIB, available_bytes: 3100 * MIB, regions_bytes: (2600 + node * 210) * MIB, ready_bytes: 256 * MIB, logs_bytes: 384 * MIB, process_bytes: 190 * MIB },
    backing: { node_region: "2 MiB", extent_region: node === 1 ? "4 KiB" : "2 MiB" }, pairs,
    entries: ["starting", "recovering", "failed"].includes(state) ? null : entriesOf(world, pairs),
    operations_per_second: state === "serving" ? load(world, `ops${node}`, now, 41_000) : 0,
    queue_estimate_us: world.isEmpty ? null : load(world, `queue${node}`, now, 14), is_self: node === 0,
  };
}

/** A node that has left: its lease has ended, and nothing more is known of it. */
const absentRow = (world) => ({
  node: 3, incarnation: "9007199254740996", address: "", http: "", state: "absent", state_detail: "its lease has ended", uptime_ms: 0, lease_remaining_ms: 0,
  connections: 0, cpu_cores_used: null, memory: { limit_bytes: 0, available_bytes: 0, regions_bytes: 0, ready_bytes: 0, logs_bytes: 0, process_bytes: 0 },
  backing: { node_region: "", extent_region: "" }, pairs: [], entries: null, operations_per_second: null, queue_estimate_us: null, is_self: false, age_ms: 0,
  absent_since_unix_ms: world.begun - 7_200_000,
});

const OPERATIONS = [["get", 71_000, 21, 96], ["search", 18_000, 26, 110], ["put", 31_000, 410, 1900], ["delete", 2100, 395, 1800], ["scan", 640, 180, 900]];

function verdictOf(world) {
  const unserved = [1, 2, 3, 4, 5, 6].filter((pair) => world.ownerOf(pair) === null);
  if (unserved.length > 0) return { level: "critical", sentence: `${unserved.length} of 6 pairs are not served: a node died and its lease has just ended.` };
  if (world.drill?.isUnderWay) return { level: "warning", sentence: "All pairs are served; a drill is under way." };
  if (world.scenario === "missing") return { level: "warning", sentence: "Node 2 does not answer; its 2 pairs may not be served." };
  return { level: "ok", sentence: "All 3 nodes serve; 1 can fail." };
}

export function status(world, now) {
  const pairs = [1, 2, 3, 4, 5, 6];
  const unserved = pairs.filter((pair) => world.ownerOf(pair) === null);
  const unknown = pairs.filter((pair) => missingOf(world).some(({ node }) => node === world.ownerOf(pair)));
  const server = load(world, "search_server", now, 61_000);
  const oneSided = load(world, "search_client", now, 44_000);
  return head(now, {
    answered_by: 0, missing: missingOf(world), verdict: verdictOf(world),
    faults_survivable: unserved.length > 0 || world.scenario === "missing"
      ? { nodes: 0, why: "Until all pairs are served again, another failure would stop more keys." }
      : { nodes: 1, why: "With one node gone, the two others have memory for its pairs." },
    nodes: present(world).map((node) => nodeRow(world, node, now)),
    pairs: {
      all: 6, served: 6 - unserved.length - unknown.length, missing: 0, unknown: unknown.length,
      unserved: [
        ...unserved.map((pair) => ({ pair, what: "waiting for the end of its owner's lease", next: "Wait: a survivor claims it within a second." })),
        ...unknown.map((pair) => ({ pair, what: `not known to be served: its node ${world.ownerOf(pair)} does not answer`, next: "See whether its node runs and can be reached. Once its lease has ended, others take the pair over." })),
      ],
    },
    operations: OPERATIONS.map(([operation, mean, p50, p99]) => ({
      operation, per_second: load(world, operation, now, mean),
      p50_us: world.isEmpty ? null : wave(`${operation}50`, now, p50), p99_us: world.isEmpty ? null : wave(`${operation}99`, now, p99), p999_us: world.isEmpty ? null : wave(`${operation}999`, now, p99 * 2.4),
      max_us: world.isEmpty ? null : wave(`${operation}max`, now, p99 * 5),
    })),
    searches: { server_per_second: server, one_sided_per_second: oneSided, one_sided_share: world.isEmpty ? null : oneSided / (server + oneSided) },
    log: {
      lag_bytes: Math.round(load(world, "lag", now, 190_000)), lag_csn: Math.round(load(world, "lagcsn", now, 300)),
      sync_p50_us: 310, sync_p99_us: wave("sync99", now, 1400), sync_max_us: wave("syncmax", now, 5200),
    },
    splits: splits(world), recoveries: world.drill?.recoveries(now) ?? [],
    coordinator: { provider: "socket", addresses: ["/var/lib/cell/coordinator.socket"], reachable: true, revision: String(48_112 + Math.floor((now - world.begun) / 5000)), seen_ms_ago: 40 },
    events: [...world.events].sort((a, b) => b.at_unix_ms - a.at_unix_ms).slice(0, 10), drills_allowed: world.scenario !== "no-drills", read_only: world.scenario === "read-only",
  });
}

const splits = (world) => ({ begun: world.splitsFinished + 2, finished: world.splitsFinished, aborted: 1, merged: 3, under_way: world.isEmpty ? 0 : 1 });

export const nodes = (world, now) => head(now, { nodes: [...present(world).map((node) => nodeRow(world, node, now)), ...(world.hasAbsent ? [absentRow(world)] : [])], missing: missingOf(world) });

export function regions(world, now) {
  const rows = [1, 2, 3, 4, 5, 6].flatMap((pair) => {
    const node = world.ownerOf(pair);
    const share = { pair, node, owner: node === null ? null : String(9007199254740993n + BigInt(node)), epoch: 3 + (pair % 4), state: node === null ? "unserved" : "served", what: node === null ? "claimed, its logs are being replayed" : null };
    return [
      { ...share, region: pair * 2, kind: "node", bytes: 512 * MIB, used_bytes: world.isEmpty ? 8 * MIB : Math.round((90 + noise("n", pair) * 180) * MIB) },
      { ...share, region: pair * 2 + 1, kind: "extent", bytes: 2048 * MIB, used_bytes: pair === 5 ? null : world.isEmpty ? MIB : Math.round((400 + noise("e", pair) * 900) * MIB) },
    ];
  });
  return head(now, { regions: rows.filter((row) => world.scenario !== "missing" || row.node !== 2), missing: missingOf(world) });
}

export function wal(world, now) {
  const rows = [1, 2, 3, 4, 5, 6].filter((pair) => present(world).includes(world.ownerOf(pair))).map((pair) => {
    const appended = 84_112_000 + pair * 1_100_000 + Math.floor((now - world.begun) * 5.2);
    const lag = Math.round(load(world, `lag${pair}`, now, 48));
    return {
      pair, node: world.ownerOf(pair), epoch: 3 + (pair % 4), csn_appended: String(appended), csn_durable: String(appended - lag),
      csn_checkpointed: String(appended - 412_000), lag_csn: lag, lag_bytes: lag * 190, log_bytes_since_checkpoint: Math.round((40 + ((now / 1000 + pair * 20) % 120)) * MIB),
      batches_per_second: load(world, `batch${pair}`, now, 820), bytes_per_batch: load(world, `bpb${pair}`, now, 9200),
      sync_us: pair === 6 ? { p50: null, p99: null, max: null } : { p50: wave(`s50${pair}`, now, 320), p99: wave(`s99${pair}`, now, 1500), max: wave(`smax${pair}`, now, 5100) },
      lag_seconds: lag === 0 ? 0 : noise("lagtime", pair, Math.floor(now / 1000)) * 0.004, segments: segments(pair, now, appended),
      replay_seconds_estimate: 0.3 + ((now / 60_000 + pair * 0.2) % 1.1), checkpoint_running: pair === 4, checkpoints: 11 + pair,
    };
  });
  return head(now, { pairs: world.isEmpty ? rows.slice(0, 0) : rows, sync_times: syncTimes(world, now), missing: missingOf(world) });
}

/** The logs move on to another segment each minute; the first is shorter than the others. */
function segments(pair, now, appended) {
  const minutes = now / 60_000 + pair * 0.3;
  return {
    in_use: [2, 3 + (pair % 3)], spare: [1, 2], released: [0, pair % 2], bytes: [3 * 64 * MIB, (5 + (pair % 3) + (pair % 2)) * 64 * MIB],
    current: [14 + pair, 61 + (Math.floor(minutes) % 1000)], current_fill: [0.18 + pair * 0.05, minutes % 1].map((part) => Math.round(part * 1000) / 1000),
    csn_oldest: String(appended - 611_000),
  };
}

/** Buckets double from 16 us on; most syncs take some 300 us, few of them milliseconds. The last bucket has no end. */
function syncTimes(world, now) {
  const ends = Array.from({ length: 15 }, (_, index) => 16 * 2 ** index);
  const last = Math.floor(now / 1000) * 1000;
  const times = Array.from({ length: 120 }, (_, index) => last - (119 - index) * 1000);
  const count = (time, bucket) => Math.round(wave(`heat${bucket}`, time, 500) * Math.exp(-((bucket - 5) ** 2) / 1.6) + (bucket > 6 && bucket < 10 ? noise("slow", bucket, time) * 2 : 0));
  return { step_ms: 1000, times_unix_ms: world.isEmpty ? [] : times, ends_us: ends, rows: world.isEmpty ? [] : times.map((time) => Array.from({ length: 16 }, (_, bucket) => count(time, bucket))) };
}

export const recoveries = (world, now) =>
  head(now, { under_way: world.drill?.recoveries(now) ?? [], incidents: world.incidents, now_boottime_ms: bootMs(now), missing: missingOf(world) });

export function events(world, now, query) {
  const limit = Number(query.get("limit") ?? 200);
  const after = query.get("after");
  const kind = query.get("kind");
  const node = query.get("node");
  let list = [...world.events].sort((a, b) => b.at_unix_ms - a.at_unix_ms);
  if (after) list = list.slice(0, Math.max(0, list.findIndex((one) => one.id === after)));
  if (kind) list = list.filter((one) => one.kind === kind);
  if (node) list = list.filter((one) => String(one.node) === node);
  list = list.slice(0, limit);
  return head(now, { events: list, first_id: list[list.length - 1]?.id ?? null, last_id: list[0]?.id ?? null, complete_since_unix_ms: now - 6 * 3600_000, missing: missingOf(world) });
}

const UNITS = [[/^ops_|searches_|splits_|log_batches|retries/, "1/s"], [/_us$/, "us"], [/_share$/, "share"], [/^log_bytes$/, "B/s"], [/bytes$/, "bytes"]];
const MEANS = {
  ops_get: 71_000, ops_search: 18_000, ops_put: 31_000, ops_delete: 2100, ops_scan: 640, latency_get_p50_us: 21, latency_get_p99_us: 96,
  latency_put_p50_us: 410, latency_put_p99_us: 1900, one_sided_share: 0.42, log_bytes: 7.2e6, log_batches: 4900, sync_p50_us: 320,
  sync_p99_us: 1500, sync_max_us: 5200, log_lag_bytes: 190_000, queue_estimate_us: 14, connections: 44, cpu_cores_used: 2.1,
  memory_used_bytes: 9.1e9, entries: 360_000, extent_live_bytes: 4.4e9, tree_nodes: 42_000, splits_finished: 0.05, replies_held: 60,
  searches_server: 61_000, searches_one_sided: 44_000, retries: 12,
};

export function series(world, now, query) {
  const names = (query.get("names") ?? "").split(",").filter(Boolean);
  const step = Number(query.get("step") ?? 1) * 1000;
  const count = Math.min(2160, Math.floor((Number(query.get("seconds") ?? 600) * 1000) / step));
  const last = Math.floor(now / step) * step;
  const times = Array.from({ length: count }, (_, index) => last - (count - 1 - index) * step);
  const known = names.filter((name) => name in MEANS);
  return head(now, {
    step_ms: step, times_unix_ms: times, marks: world.tuning.marks(times[0]),
    series: known.map((name) => ({
      name, unit: UNITS.find(([pattern]) => pattern.test(name))?.[1] ?? "", node: query.get("node") ?? "all",
      // a gap, as after a node's restart
      values: times.map((time, index) => (world.isEmpty ? 0 : index === Math.floor(count / 3) ? null : Math.max(0, wave(name, time, MEANS[name])))),
    })),
  });
}

export function buckets(world, now, query) {
  const [from, to] = [query.get("from") ?? "", query.get("to")];
  const all = world.isEmpty ? world.meganodes.slice(0, 6) : world.meganodes;
  const shown = all.map((one, index) => ({ one, high: all[index + 1] ? key(all[index + 1].low) : null }))
    .filter(({ one, high }) => (!to || key(one.low).hex < to) && (high === null || high.hex > from));
  return head(now, {
    low: shown[0] ? key(shown[0].one.low) : key(""), high: shown.at(-1)?.high ?? null, meganodes_all: all.length,
    entries_all: world.isEmpty ? 0 : all.reduce((sum, one) => sum + one.entries, 0), levels_max: 4, splits: splits(world),
    buckets: grouped(shown.map(({ one, high }, index) => bucket(world, one, high, index, now)), from || to),
    routers: [{ id: "1.0", pair: 1, node: world.ownerOf(1) ?? 0, height: 2, entries: all.length, fill: 0.06 }], missing: missingOf(world),
  });
}

/** Load at the pairs' keys since the mock's world began, of ten minutes or an hour; what was before is not known. */
export function heat(world, now, query) {
  const step = Number(query.get("step") ?? 10) * 1000;
  const { buckets: shown, high } = buckets(world, now, query);
  const times = Array.from({ length: 60 }, (_, index) => Math.floor(now / step) * step - (59 - index) * step);
  const first = now - 0.8 * 60 * step;
  const rates = (read) => times.map((time) => {
    if (time < first || world.isEmpty) return null;
    return buckets(world, time, query).buckets.map((bucket) => { const rate = read(bucket); return rate === null ? null : Math.round(rate * 10) / 10; });
  });
  return head(now, {
    step_ms: step, times_unix_ms: times, lows: shown.map((one) => one.low.hex), high,
    writes: rates((bucket) => bucket.writes_per_second), reads: rates((bucket) => bucket.reads_per_second), missing: missingOf(world),
  });
}

/** Of all keys, the last three meganodes are one column, as those of a larger store are. */
function grouped(list, isZoomed) {
  if (isZoomed || list.length < 8) return list;
  const three = list.slice(-3);
  const sum = (read) => three.reduce((total, one) => total + read(one), 0);
  const isTold = three.every((one) => one.state === "entries" || one.state === "splitting");
  return [...list.slice(0, -3), {
    ...three[0], high: three[2].high, meganodes: 3, entries: sum((one) => one.entries), bytes: sum((one) => one.bytes), tree_nodes: sum((one) => one.tree_nodes),
    tree_nodes_all: sum((one) => one.tree_nodes_all), fill: sum((one) => one.fill) / 3, pair: null, id: null, state: isTold ? "entries" : three.find((one) => one.state !== "entries").state,
  }];
}

/** A range whose owner does not answer, or that nobody owns: nothing is known of what is in it. */
const unreported = (one, high, owner) => ({
  low: key(one.low), high, meganodes: 0, entries: 0, bytes: 0, tree_nodes: 0, tree_nodes_all: 0, fill: 0, height: 0, node: owner, pair: one.pair,
  state: owner === null ? "unserved" : "not told", writes_per_second: null, reads_per_second: null, id: null,
});

function bucket(world, one, high, index, now) {
  const silent = world.ownerOf(one.pair);
  if (silent === null || !present(world).includes(silent)) return unreported(one, high, silent);
  const entries = world.isEmpty ? 0 : one.entries;
  const fill = Math.min(0.98, 0.08 + entries / 14_000);
  const owner = world.ownerOf(one.pair);
  const hot = index % 11 === 3 ? 9 : 1;
  return {
    low: key(one.low), high, meganodes: 1, entries, bytes: entries * (120 + (one.slot % 7) * 60), tree_nodes: Math.round(TREE_NODES * fill),
    tree_nodes_all: TREE_NODES, fill, height: entries > 6000 ? 4 : 3, node: owner, pair: one.pair,
    state: world.isEmpty ? "entries" : index === 9 ? "splitting" : "entries",
    writes_per_second: load(world, `w${one.slot}`, now, 520 * hot), reads_per_second: load(world, `r${one.slot}`, now, 1900 * (index % 7 === 2 ? 5 : 1)),
    id: `${one.pair}.${one.slot}`,
  };
}

const find = (world, id) => world.meganodes.findIndex((one) => `${one.pair}.${one.slot}` === id);

export function meganode(world, now, id) {
  const index = find(world, id);
  if (index < 0) return null;
  const one = world.meganodes[index];
  const right = world.meganodes[index + 1];
  const shape = bucket(world, one, right ? key(right.low) : null, index, now);
  const slots = Buffer.alloc(TREE_NODES);
  for (let at = 0; at < shape.tree_nodes; at += 1) slots[at] = at === 0 || noise("slot", id, at) < 0.06 ? 1 : noise("hidden", id, at) < 0.01 ? 3 : 2;
  for (let at = 0; at < TREE_NODES; at += 1) if (noise("hole", id, at) < 0.04) slots[at] = 0;
  const leaves = Math.round(shape.tree_nodes * 0.93);
  const histogram = (spread) => Array.from({ length: 10 }, (_, tenth) => Math.round(leaves * spread[tenth]));
  return head(now, {
    id, pair: one.pair, slot: one.slot, node: shape.node, low: shape.low, high: shape.high, use: "entries", height: shape.height,
    entries: shape.entries, tree_nodes: shape.tree_nodes, tree_nodes_all: TREE_NODES, right: right ? `${right.pair}.${right.slot}` : null,
    levels: [
      { level: 0, nodes: leaves, entries: shape.entries, fill_histogram: histogram([0, 0.01, 0.02, 0.05, 0.1, 0.24, 0.22, 0.16, 0.12, 0.08]) },
      { level: 1, nodes: Math.round(shape.tree_nodes * 0.065), entries: leaves, fill_histogram: [0, 0, 1, 4, 8, 22, 30, 18, 9, 3] },
      { level: 2, nodes: 9, entries: Math.round(shape.tree_nodes * 0.065), fill_histogram: [0, 0, 0, 0, 2, 3, 3, 1, 0, 0] },
      { level: 3, nodes: 1, entries: 9, fill_histogram: [0, 1, 0, 0, 0, 0, 0, 0, 0, 0] },
    ].slice(0, shape.height),
    slots: slots.toString("base64"),
  });
}

export function treeNode(world, now, id, index) {
  const at = find(world, id);
  if (at < 0) return null;
  const low = world.meganodes[at].low || "a";
  const keys = Array.from({ length: 22 }, (_, step) => key(`${low}${String.fromCharCode(97 + (step % 26))}${String(index).padStart(4, "0")}`));
  const level = index === 0 ? 2 : index % 16 === 0 ? 1 : 0;
  return head(now, { version: 48 + index * 2, index, level, low: keys[0], high: key(`${low}z`), entries: 22, keys, right: index + 1 < 4000 ? index + 1 : null });
}

export function locate(world, now, hex) {
  const text = Buffer.from(hex, "hex").toString();
  let at = world.meganodes.findIndex((one) => one.low > text) - 1;
  if (at < -1) at = world.meganodes.length - 1;
  const one = world.meganodes[Math.max(0, at)];
  const found = words.some((word) => text.startsWith(word));
  return head(now, {
    key: key(text), found, node: world.ownerOf(one.pair) ?? 0, pair: one.pair, meganode: `${one.pair}.${one.slot}`,
    path: [{ index: 0, level: 3 }, { index: 17, level: 2 }, { index: 204, level: 1 }, { index: 1311, level: 0 }], bytes: found ? 212 : null, searched: "server",
  });
}

const entryKey = (index) => `${words[Math.floor(index / 1000) % words.length]}-${String(index % 1000).padStart(4, "0")}`;
const ENTRIES = words.length * 1000;

function firstAt(text) {
  let [low, high] = [0, ENTRIES];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (entryKey(middle) < text) low = middle + 1;
    else high = middle;
  }
  return low;
}

const entry = (index) => ({ key: key(entryKey(index)), value_preview: `${index * 7919 % 99991} a value of ${entryKey(index)}`, bytes: 24 + (index % 900), version: `${(index % 6) + 1}.3.${84_000_000 + index}` });

export function kvPage(world, now, query) {
  const limit = Math.min(200, Number(query.get("limit") ?? 100));
  const isReverse = query.get("reverse") === "1";
  const prefix = Buffer.from(query.get("prefix") ?? "", "hex").toString();
  const from = Buffer.from(query.get("from") ?? "", "hex").toString();
  const all = [];
  if (!world.isEmpty) {
    const begin = isReverse ? (from ? firstAt(from) - 1 : ENTRIES - 1) : firstAt(from > prefix ? from : prefix);
    for (let at = begin; at >= 0 && at < ENTRIES && all.length <= limit; at += isReverse ? -1 : 1) {
      if (prefix && !entryKey(at).startsWith(prefix)) break;
      all.push(entry(at));
    }
  }
  return head(now, { entries: all.slice(0, limit), next: all.length > limit ? (isReverse ? all[limit - 1] : all[limit]).key.hex : null });
}

export function kvValue(world, now, hex) {
  const text = Buffer.from(hex, "hex").toString();
  const index = firstAt(text);
  if (world.isEmpty || index >= ENTRIES || entryKey(index) !== text) return null;
  const value = `${entry(index).value_preview}. `.repeat(6);
  return head(now, { key: key(text), value: { text: value, base64: Buffer.from(value).toString("base64"), bytes: value.length, truncated: false }, version: entry(index).version, node: index % 3, pair: (index % 6) + 1, found_by: "server" });
}

/** A check of the tree, which takes a second. The nodes that do not answer are missing. */
export function treeCheck(world, now, id, begun) {
  const part = Math.min(1, (now - begun) / 1000);
  const done = part === 1;
  const nodes = present(world).map((node) => {
    const pairs = pairsOf(world, node);
    const entries = entriesOf(world, pairs);
    const all = Math.ceil(entries / 30) + pairs.length;
    return {
      node, done, tree_nodes: Math.floor(all * part), tree_nodes_all: all, entries: Math.floor(entries * part), violations: 0,
      duration_us: done ? 1_000_000 : null, pairs: done ? pairs : [], found: [],
    };
  });
  const sum = (name) => nodes.reduce((total, one) => total + one[name], 0);
  const unchecked = done ? [1, 2, 3, 4, 5, 6].filter((pair) => !nodes.some((one) => one.pairs.includes(pair))) : [];
  return head(now, {
    operation: "tree_check", id, runner: 0, done, state: done ? (unchecked.length > 0 ? "incomplete" : "passed") : "running",
    begun_unix_ms: begun, duration_us: done ? 1_000_000 : null, tree_nodes: sum("tree_nodes"), tree_nodes_all: sum("tree_nodes_all"),
    entries: sum("entries"), violations: 0, unchecked_pairs: unchecked, nodes, missing: missingOf(world),
  });
}
