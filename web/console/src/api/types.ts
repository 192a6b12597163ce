// The documents of the admin API, as the node sends them. Times `*_ms` are milliseconds, `*_us` microseconds,
// `*_ns` nanoseconds, shares 0 to 1, rates a second. 64-bit ids are decimal strings.

export interface Missing { node: number; address: string; why: string }

export interface Document {
  version: number; at_unix_ms: number; age_ms?: number; missing?: Missing[];
  /** Of a list: whether rows are left out, and how many there are. */
  truncated?: boolean; total?: number;
}

export interface Key { text: string; hex: string }

export type Level = "ok" | "warning" | "critical";

export interface Memory {
  limit_bytes: number; available_bytes: number; regions_bytes: number; ready_bytes: number; logs_bytes: number;
  process_bytes: number;
}

export interface NodeRow {
  node: number; incarnation: string; address: string; http: string; state: string; state_detail: string | null;
  uptime_ms: number; lease_remaining_ms: number; connections: number; cpu_cores_used: number | null; memory: Memory;
  backing: { node_region: string; extent_region: string }; pairs: number[];
  /** What the memory limit has granted to each of them, in their order. */
  pairs_granted_bytes?: number[];
  /** Null: it has not its pairs yet, or not any more. */
  entries: number | null;
  /** Null, here and in other rates: nothing is known of the last second. */
  operations_per_second: number | null; queue_estimate_us: number | null; is_self: boolean;
  /** How long its figures stand still. */
  age_ms?: number;
  /** It is to be emptied, and gets no pairs. */
  draining?: boolean;
  /** Of a node whose lease has ended: since when, if a node has seen it. Its row has no figures. */
  absent_since_unix_ms?: number | null;
}

export const isAbsent = (node: NodeRow): boolean => node.state === "absent" || typeof node.absent_since_unix_ms === "number";

export interface DrainRow {
  node: number; who: string; why: string | null; since_unix_ms: number; state: "draining" | "drained" | "removed";
  /** Null: its node does not say. */
  pairs_left: number; bytes_left: number | null; stall: string | null;
}

export interface DrainsDocument extends Document { drains: DrainRow[] }

export interface BalanceNode {
  /** Percents are null for all nodes while there is too little to count. */
  node: number; pairs: number; bytes: number; bytes_percent: number | null; load_share: number; load_percent: number | null; draining: boolean;
  /** Puts find no memory there. Nodes of earlier versions do not say it. */
  writes_wait?: boolean;
  /** How it stands, in a sentence. */
  words: string;
}

export interface BalanceDocument extends Document {
  /** Null: none that answers balances. */
  balancer: number | null; on: boolean; step: "move" | "cancel" | "rest"; decision: string;
  mean_bytes: number; mean_load_share: number;
  moves: { above: number; below: number; drain: number; fresh: number; full: number; cancelled: number };
  nodes: BalanceNode[]; pairs: { pair: number; node: number; bytes: number | null; load_share: number | null; obstacle: string | null }[];
  total: number; truncated: boolean;
}

export interface RecoveryRow {
  pair: number; node: number; stage: string; bytes_done: number; bytes_total: number; bytes_per_second: number;
}

export interface EventRow {
  id: string; at_unix_ms: number; node: number; kind: string; severity: "info" | "warning" | "critical"; text: string;
  details: Record<string, unknown>;
}

export interface OperationRow {
  operation: string; per_second: number | null; p50_us: number | null; p99_us: number | null; p999_us?: number | null; max_us?: number | null;
}

export interface Splits { begun: number; finished: number; aborted: number; merged: number; under_way: number }

export interface Status extends Document {
  answered_by: number;
  verdict: { level: Level; sentence: string };
  faults_survivable: { nodes: number; why: string };
  nodes: NodeRow[];
  /** Of those that are not served: `missing`, those that no node reports which answers; `unknown`, those whose node does not answer. */
  pairs: { all: number; served: number; missing: number; unknown: number; unserved: { pair: number; what: string; next: string }[] };
  operations: OperationRow[];
  searches: { server_per_second: number | null; one_sided_per_second: number | null; one_sided_share: number | null };
  log: {
    lag_bytes: number; lag_csn: number; sync_p50_us: number | null; sync_p99_us: number | null;
    sync_max_us: number | null;
  };
  splits: Splits;
  recoveries: RecoveryRow[];
  coordinator: {
    provider: "embedded" | "socket" | "tls" | "etcd" | null; addresses: string[]; reachable: boolean; revision: string;
    seen_ms_ago: number | null;
  };
  events: EventRow[];
  drills_allowed: boolean;
  read_only: boolean;
}

export interface NodesDocument extends Document { nodes: NodeRow[] }

export interface RegionRow {
  region: number; kind: "node" | "extent"; pair: number; node: number | null; owner: string | null; epoch: number;
  bytes: number; used_bytes: number | null; state: string; what: string | null;
}

export interface RegionsDocument extends Document { regions: RegionRow[] }

export type MoveStage = "wanted" | "copying" | "ready" | "handed";

/** A planned move of a pair. Times are null where it did not come so far, or nobody said when. */
export interface MoveRow {
  pair: number; number: number; from: number; to: number; stage: MoveStage; why: string; bytes_done: number; bytes_total: number;
  /** Null: it is under way. */
  outcome: "moved" | "cancelled" | "given_up" | "back" | null;
  because: string | null; cancelled_by: string | null; wanted_unix_ms: number | null; copying_unix_ms: number | null;
  ready_unix_ms: number | null; handed_unix_ms: number | null; over_unix_ms: number | null; frozen_ms: number | null;
  /** For If-Match: another one where it is another move, or would be. */
  revision: string;
}

export interface MovesDocument extends Document { moves: MoveRow[] }

export interface MoveAnswer extends Document { move: MoveRow; dry_run: boolean }

export interface WalRow {
  pair: number; node: number; epoch: number; csn_appended: string; csn_durable: string; csn_checkpointed: string | null;
  lag_csn: number; lag_bytes: number; log_bytes_since_checkpoint: number; batches_per_second: number | null;
  bytes_per_batch: number | null; sync_us: { p50: number | null; p99: number | null; max: number | null };
  replay_seconds_estimate: number | null; checkpoint_running: boolean; checkpoints: number;
  /** How long what is not durable takes at the rate of the last second; null: nothing was synced in it. */
  lag_seconds?: number | null;
  /** Files of the logs; null: there are no logs. */
  segments?: LogSegments | null;
}

/** Two figures each: of the node log, and of the extent log. */
export interface LogSegments {
  in_use: number[]; spare: number[]; released: number[]; bytes: number[];
  /** The number of the segment that is written, and how full it is. */
  current: number[]; current_fill: number[];
  /** Of both logs the lesser one. */
  csn_oldest: string;
}

/** Syncs by how long they took, a row for each of the last seconds. */
export interface SyncTimes {
  step_ms: number; times_unix_ms: number[];
  /** Where buckets end. A row has one count more: of longer times. */
  ends_us: number[];
  rows: number[][];
}

export interface WalDocument extends Document { pairs: WalRow[]; sync_times?: SyncTimes | null }

/** Times are milliseconds of CLOCK_BOOTTIME; 0 is "not yet". */
export interface IncidentShare {
  pair: number; survivor: string | null; survivor_node: number | null; claimed_ms: number; cut_ms: number;
  replayed_ms: number; replayed_bytes: number; serving_ms: number;
}

export interface Incident {
  dead: string; node: number | null; detected_ms: number; lease_seen_ms: number; all_back_ms: number | null;
  shares: IncidentShare[];
}

export interface RecoveriesDocument extends Document {
  under_way: RecoveryRow[]; incidents: Incident[]; now_boottime_ms: number;
}

export interface EventsDocument extends Document {
  events: EventRow[]; first_id: string | null; last_id: string | null;
  /** Asked for with it, the next answer has all that came after this one. */
  cursor?: string;
  /** What nodes saw before it is not kept any more: they were started since, or one has died. */
  complete_since_unix_ms?: number;
}

export interface Mark { at_unix_ms: number; revision: string; names: string[] }

export interface SeriesDocument extends Document {
  step_ms: number; times_unix_ms: number[];
  series: { name: string; unit: string; node: number | "all"; values: (number | null)[] }[];
  marks: Mark[];
}

/**
 * `bytes` are of extents, about: a pair's shared out by entries. `node` of several meganodes is who has most of the
 * entries; null: nobody serves them. `state`: entries, splitting, unserved, or "not told" where `node` did not
 * answer. Reads are those that servers carried out, and one-sided ones as clients report them: see
 * `HeatDocument`.
 */
export interface Bucket {
  low: Key; high: Key | null; meganodes: number; entries: number; bytes: number; tree_nodes: number;
  tree_nodes_all: number; fill: number; height: number; node: number | null; pair: number | null; state: string;
  writes_per_second: number | null; reads_per_second: number | null; id?: string | null;
}

export interface RouterRow { id: string; pair: number; node: number; height: number; entries: number; fill: number }

export interface BucketsDocument extends Document {
  /** Who does not read entries is told no keys: `withPlaces` puts numbers there. */
  keys_left_out?: boolean;
  low: Key; high: Key | null; meganodes_all: number; entries_all: number; levels_max: number; splits: Splits;
  buckets: Bucket[]; routers: RouterRow[];
}

/**
 * Writes and reads by range of keys, a row for each step, oldest first. Of one-sided reads clients report
 * once a second; of many, some are drawn.
 */
export interface HeatDocument extends Document {
  step_ms: number; times_unix_ms: number[];
  /** Where each range begins, in hexadecimal digits. */
  lows: string[];
  high: Key | null;
  /** A second, by range. Null: nothing is known of the step, or not of all keys of the range. */
  writes: ((number | null)[] | null)[]; reads: ((number | null)[] | null)[];
}

export interface Meganode extends Document {
  keys_left_out?: boolean;
  id: string; pair: number; slot: number; node: number; low?: Key; high?: Key | null; use: string; height: number;
  entries: number; tree_nodes: number; tree_nodes_all: number;
  levels: { level: number; nodes: number; entries: number; fill_histogram: number[] }[];
  /** Base64 of one byte a tree node: 0 free, 1 inner, 2 leaf, 3 hidden. */
  slots: string;
  right: string | null;
}

export interface TreeNode extends Omit<Document, "version"> {
  /** Of the tree node, not of the document. */
  version: number | string; index: number; level: number; low: Key; high: Key | null; entries: number; keys: Key[];
  right: number | null;
}

export interface Located extends Document {
  key: Key; found: boolean; node: number; pair: number; meganode: string; path: { index: number; level: number }[];
  bytes: number | null; searched: string;
}

export interface SelectorPair {
  client: string; client_name: string; transport: string; node: number; age_ms: number; policy: string;
  settings_revision: string;
  /** What it counts, and its reasons, are null where it is silent. */
  searches_per_second: number | null; one_sided_share: number | null; ratio_10s: number | null;
  l_s_ns: number | null; l_r_ns: number | null; rtt_ns: number | null; m: number | null; one_sided_ns: number | null;
  queue_estimate_ns: number | null;
  decision: {
    path: "server" | "one_sided" | null; server_side_ns: number | null; one_sided_side_ns: number | null; sentence: string;
  };
  reasons: Record<string, number | null>;
  cache_hits_per_second: number | null; cache_hit_share: number | null; reads_per_search: number | null;
  retries: Record<string, number | null>; fallbacks_per_second: number | null; in_hand: number;
}

export interface SelectorDocument extends Document { pairs: SelectorPair[]; clients_dropped: number }

export interface SelectorSeries extends Document {
  client: string; node: number; step_ms: number; times_unix_ms: number[];
  series: Record<string, (number | null)[]>; marks: Mark[];
}

export interface Setting {
  name: string; value: string; value_number: number | null; default: string; source: string;
  applies: "live" | "restart" | "creation"; why_not_live: string | null; unit: string | null; kind: string;
  min: number | string | null; max: number | string | null; choices: string[] | null; section: string;
  /** It takes 0 besides, which is none. */
  or_none: boolean; meaning: string; expires_unix_ms: number | null; series: string | null;
}

export interface TuningDocument extends Document {
  revision: string; settings: Setting[]; nodes: { node: number; revision: string; in_force: boolean }[];
}

export interface SettingChange {
  name: string; old: string | null; new: string | null;
  /** When the old value would have ended, and what would have come after it, in order. */
  old_end?: { expires_unix_ms: number; after?: string; later?: { expires_unix_ms: number; after?: string }[] } | null;
  /** When the new one ends. */
  new_expires_unix_ms?: number;
}

export interface TuningAnswer extends Document {
  revision: string; changes: SettingChange[]; dry_run: boolean; expires_unix_ms: number | null;
}

export interface TuningHistoryRow {
  revision: string; at_unix_ms: number; who: string; reason: string | null; changes: SettingChange[];
  reverted_by: string | null; expires_unix_ms: number | null;
}

/** `next` is the `before` of the next page, of older ones. */
export interface TuningHistory extends Document { changes: TuningHistoryRow[]; next: string | null }

/** A number has bounds; one without is a flag. */
export interface DrillParameter { min?: number; max?: number; default: number | boolean; unit?: string | null; meaning?: string }

export interface DrillKind { kind: string; meaning: string; parameters: Record<string, DrillParameter> }

export type DrillState = "beginning" | "running" | "healing" | "verifying" | "passed" | "failed" | "inconclusive" | "halted";

export interface DrillRun {
  id: string; kind: string; node: number; /** The node that runs it. */ runner: number; state: DrillState;
  /** What it waits for before it begins. */
  waits_for?: string | null;
  /** When it was asked for, until it begins. */
  begun_unix_ms: number; ended_unix_ms: number | null;
  /** Who began it, and who halted it. */
  who?: string | null; halted_by?: string | null;
  timeline: { name: string; at_ms: number; pair: number | null }[];
  /** What neither succeeded nor failed in a step was still under way at its end. */
  lane: { at_ms: number; attempted: number; succeeded: number; failed: number; p99_us: number | null }[];
  report: DrillReport | null;
}

export type DrillReport = Record<string, unknown> & {
  verdict?: string; reasons?: string[];
  /** How the keys were read back: one-sided, by servers, by a scan. */
  ways?: Record<string, { found?: number; lost: number; stale: number; phantom: number }>;
  wrong?: { key: string; what: string; ms?: number }[];
  slowest?: { key: string; what: string; ms?: number }[];
};

export interface DrillsDocument extends Document {
  allowed: boolean; why_not: string | null; kinds: DrillKind[]; runs: DrillRun[];
}

export interface DrillPreview extends Document {
  node: number; kind: string; pairs: number[]; survivors: number[];
  /** Null: the node does not know; and the share, some node does not. */
  entries: number | null; key_share: number | null;
  sentence: string; confirm: string;
  /** Another one where it would stop something else. */
  revision: string;
}

/** `value_preview` is empty where the value is too long to be read for it. */
export interface KvEntry { key: Key; value_preview: string; bytes: number; version: string }

/** `next` is the `from` of the next page: forward its first key, in reverse the key that it is below. */
export interface KvPage extends Document { entries: KvEntry[]; next: string | null }

export interface KvValue extends Omit<Document, "version"> {
  key: Key; value: { text: string | null; base64: string; bytes: number; truncated: boolean }; version: string;
  node: number; pair: number; found_by: string;
}

/** A rule that is broken, and the tree node that was looked at. */
export interface TreeFault { pair: number; slot: number; index: number; what: string }

export interface TreeCheckPart {
  node: number; done: boolean; tree_nodes: number; tree_nodes_all: number; entries: number; violations: number;
  duration_us: number | null; pairs: number[]; found: TreeFault[];
}

/** A check of the tree, as `operations/{id}` returns it. */
export interface TreeCheck extends Document {
  id: string; runner: number; done: boolean; state: "running" | "passed" | "failed" | "incomplete";
  begun_unix_ms: number; duration_us: number | null; tree_nodes: number; tree_nodes_all: number; entries: number;
  violations: number; unchecked_pairs: number[]; nodes: TreeCheckPart[];
}

export type Role = "reader" | "writer" | "viewer" | "operator" | "admin";

/** `role` is the one of `roles` that permits most. */
export interface WhoAmI extends Document { name: string; role: Role; roles: Role[]; tokens_required: boolean }
