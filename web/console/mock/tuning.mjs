// Settings as the registry has them (read from docs/SETTINGS.md), with revisions, history and checks.

import { readFileSync } from "node:fs";
import { head, missingOf } from "./documents.mjs";

const FILE = new URL("../../../docs/SETTINGS.md", import.meta.url);
const SERIES = {
  client_selector_exploration: "one_sided_share", client_selector_policy: "one_sided_share", client_selector_wait_weight: "queue_estimate_us",
  checkpoint_log_bytes_min: "log_bytes", checkpoint_log_ratio: "log_bytes", split_fill_percent: "splits_finished", log_batch_bytes: "log_batches",
  compaction_ratio: "tree_nodes", scan_page_entries_max: "ops_scan", memory_limit_bytes: "memory_used_bytes",
};

function kindOf(orNone) {
  const takes = orNone.replace(/^0, or /, "");
  const bounds = / from (\S+(?: [A-Za-z]+)?) to (\S+(?: [A-Za-z]+)?)/.exec(takes);
  const [min, max] = bounds ? [bounds[1], bounds[2].replace(/,$/, "")] : [null, null];
  if (takes.startsWith("one of ")) return { kind: "choice", choices: takes.slice(7).split(", "), unit: null, min: null, max: null };
  if (takes.startsWith("true")) return { kind: "flag", choices: ["true", "false"], unit: null, min: null, max: null };
  if (takes.startsWith("bytes")) return { kind: "bytes", choices: null, unit: "bytes", min, max };
  if (takes.startsWith("a time")) return { kind: "time", choices: null, unit: "ms", min, max };
  if (takes.startsWith("a whole")) return { kind: "integer", choices: null, unit: null, min: Number(min), max: Number(max) };
  if (takes.startsWith("a number")) return { kind: "real", choices: null, unit: null, min: Number(min), max: Number(max) };
  return { kind: "text", choices: null, unit: null, min: null, max: null };
}

function registry() {
  let section = "";
  const settings = [];
  for (const line of readFileSync(FILE, "utf8").split("\n")) {
    if (line.startsWith("## ")) section = line.slice(3).trim();
    const cells = line.split("|").map((cell) => cell.trim());
    const name = /^`([a-z_0-9]+)`$/.exec(cells[1] ?? "")?.[1];
    if (!name) continue;
    const [, , initial, takes, applies, meaning, why] = cells;
    settings.push({
      name, value: initial, value_number: Number.isFinite(Number(initial)) ? Number(initial) : null, default: initial, source: "default", applies,
      why_not_live: applies === "live" ? null : why,
      ...kindOf(takes), or_none: takes.startsWith("0, or "), section, meaning, expires_unix_ms: null, series: SERIES[name] ?? null,
    });
  }
  return settings;
}

export class Tuning {
  constructor(world) {
    this.world = world;
    this.settings = registry();
    this.of = new Map(this.settings.map((setting) => [setting.name, setting]));
    this.history = [];
    this.revision = "7";
    this.of.get("lease_ms").source = "file";
    this.apply({ checkpoint_log_ratio: "0.8" }, "op@console", "shorter replays", null, Date.now() - 3_600_000);
    this.conflict = false;
  }

  number(name) {
    return Number(this.of.get(name).value);
  }

  numberAt(name, time) {
    const later = this.history.filter((row) => row.at_unix_ms > time).flatMap((row) => row.changes).filter((change) => change.name === name);
    return Number(later.length > 0 ? later[0].old : this.of.get(name).value);
  }

  marks(since) {
    return this.history.filter((row) => row.at_unix_ms >= since).map((row) => ({ at_unix_ms: row.at_unix_ms, revision: row.revision, names: row.changes.map((change) => change.name) }));
  }

  document(now) {
    for (const setting of this.settings) {
      if (setting.expires_unix_ms !== null && setting.expires_unix_ms <= now) this.apply({ [setting.name]: null }, "cell", "its time to live ended", null, now);
    }
    return head(now, {
      revision: this.revision, settings: this.settings, missing: missingOf(this.world),
      nodes: (this.world.scenario === "missing" ? [0, 1] : [0, 1, 2]).map((node) => ({ node, revision: this.revision, in_force: true })),
    });
  }

  /** Of the history, newest first. */
  page(limit, before) {
    const older = this.history.filter((row) => Number(row.revision) < before);
    const changes = older.slice(0, limit);
    return { changes, next: older.length > limit ? changes.at(-1).revision : null };
  }

  errors(patch) {
    const errors = [];
    for (const [name, value] of Object.entries(patch)) {
      const setting = this.of.get(name);
      const fail = (detail) => errors.push({ pointer: `/${name}`, detail, min: setting?.min ?? null, max: setting?.max ?? null, unit: setting?.unit ?? null });
      if (!setting) fail("There is no such setting.");
      else if (setting.applies !== "live") fail(`It does not change while nodes run. ${setting.why_not_live}`);
      else if (value === null) continue;
      else if (setting.choices && !setting.choices.includes(value)) fail(`It takes one of ${setting.choices.join(", ")}.`);
      else if (typeof setting.min === "number" && !(Number(value) >= setting.min && Number(value) <= setting.max)) fail(`It takes a number from ${setting.min} to ${setting.max}.`);
    }
    return errors;
  }

  changesOf(patch) {
    return Object.entries(patch).map(([name, value]) => ({ name, old: this.of.get(name).value, new: value ?? this.of.get(name).default }));
  }

  apply(patch, who, reason, ttlSeconds, now = Date.now()) {
    const changes = this.changesOf(patch);
    const expires = ttlSeconds ? now + ttlSeconds * 1000 : null;
    for (const [name, value] of Object.entries(patch)) {
      const setting = this.of.get(name);
      setting.value = value ?? setting.default;
      setting.value_number = Number.isFinite(Number(setting.value)) ? Number(setting.value) : null;
      setting.source = value === null ? "default" : "admin";
      setting.expires_unix_ms = value === null ? null : expires;
    }
    this.revision = String(Number(this.revision) + 1);
    this.history.unshift({ revision: this.revision, at_unix_ms: now, who, reason, changes, reverted_by: null, expires_unix_ms: expires });
    this.world.event("setting", "info", 0, `${changes.map((change) => `${change.name} is ${change.new} (${change.old} before)`).join(", ")}.`, now);
    return changes;
  }

  revert(revision, isDry) {
    const row = this.history.find((one) => one.revision === revision);
    if (!row) return null;
    const patch = Object.fromEntries(row.changes.map((change) => [change.name, change.old === this.of.get(change.name).default ? null : change.old]));
    if (isDry) return this.changesOf(patch).filter((change) => change.old !== change.new);
    const changes = this.apply(patch, "admin", `revert of ${revision}`, null);
    row.reverted_by = this.revision;
    return changes;
  }
}
