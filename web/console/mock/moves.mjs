// Planned moves of pairs, as rows that a test may change: who wanted which, how far it is, what became of it.

const MIB = 2 ** 20;

export class Moves {
  constructor(world) {
    this.world = world;
    const over = (pair, to, more) => ({ ...this.plan(pair, to, "ann: more room", world.begun - 3_600_000), ...more });
    this.rows = [
      over(4, 2, { stage: "copying", why: "ann: node 0 is full", wanted_unix_ms: world.begun - 21_000, copying_unix_ms: world.begun - 20_800, bytes_done: 222 * MIB, bytes_total: 600 * MIB }),
      over(2, 1, { from: 0, stage: "handed", outcome: "moved", handed_unix_ms: world.begun - 3_597_200, over_unix_ms: world.begun - 3_597_100, frozen_ms: 31, bytes_done: 480 * MIB, bytes_total: 480 * MIB }),
      over(6, 0, { stage: "copying", outcome: "given_up", because: "its target has ended", over_unix_ms: world.begun - 3_500_000 }),
    ];
    /** Nodes that may hold no more. */
    this.full = new Set();
  }

  get shown() {
    return this.world.isEmpty ? [] : this.rows;
  }

  of(pair) {
    return this.shown.find((row) => row.pair === pair);
  }

  document() {
    const moves = [...this.shown].sort((a, b) => Number(a.outcome !== null) - Number(b.outcome !== null) || a.pair - b.pair);
    return { moves, total: moves.length, truncated: false };
  }

  /** What a move would be. */
  plan(pair, to, why, now) {
    const number = (this.rows?.find((row) => row.pair === pair)?.number ?? 0) + 1;
    const from = this.world.ownerOf(pair);
    return {
      pair, number, from, to, stage: "wanted", why, bytes_done: 0, bytes_total: 0, outcome: null, because: null, cancelled_by: null, wanted_unix_ms: now,
      copying_unix_ms: null, ready_unix_ms: null, handed_unix_ms: null, over_unix_ms: null, frozen_ms: null, revision: `${pair}.${number}.3.${from}.${to}`,
    };
  }

  /** Why a move cannot be: status, code, detail, next; null if it can. */
  refusal(pair, to) {
    const from = this.world.ownerOf(pair);
    if (!(pair >= 1 && pair <= 6)) return [404, "not_found", `There is no pair-${pair}.`, "`cell region ls` lists the pairs"];
    if (from === to) return [409, "move_refused", `Node-${to} has pair-${pair} already.`, "`cell region ls` shows who has it, and what moves"];
    if (this.full.has(to)) return [409, "no_memory", `Node-${to} may hold 8589934592 bytes; with 2684354560 more it would hold too much.`, "choose a node with more room, or give it more"];
    const under = this.of(pair);
    if (under && under.outcome === null) return [409, "move_refused", `Pair-${pair} is on its way from node-${under.from} to node-${under.to}: wait for that, or cancel it first.`, "`cell region ls` shows who has it, and what moves"];
    return null;
  }

  put(row) {
    this.rows = [...this.rows.filter((one) => one.pair !== row.pair), row];
    return row;
  }

  /** Answers `POST moves` and `POST moves:cancel`: a problem as `refusal` has it, or a row. */
  change(path, { pair, to }, { seen, reason, isDry, who, now }) {
    const stale = () => [412, "stale_preview", `Nothing was done: pair-${pair} is not where it was any more, or has moved since.`, "look at what would be done now, with dry_run=1, and decide anew"];
    if (path === "moves:cancel") {
      const row = this.of(pair);
      if (!row || row.outcome !== null) return { problem: [409, "move_refused", `No move of pair-${pair} is under way.`, null] };
      if (seen && seen !== row.revision) return { problem: stale() };
      if (row.stage === "handed") return { problem: [409, "move_refused", `Pair-${pair} has been handed over to node-${row.to}, which serves it in a moment: move it back if need be.`, null] };
      this.world.event("move", "info", row.from, `the move of pair-${pair} from node-${row.from} to node-${row.to} was cancelled by ${who}`, now, { pair, what: "cancelled" });
      return { row: Object.assign(row, { outcome: "cancelled", cancelled_by: who, over_unix_ms: now }) };
    }
    const problem = this.refusal(pair, to);
    if (problem) return { problem };
    const row = this.plan(pair, to, reason ? `${who}: ${reason}` : who, now);
    if (seen && seen !== row.revision) return { problem: stale() };
    if (isDry) return { row };
    this.world.event("move", "info", row.from, `pair-${pair} is to move from node-${row.from} to node-${to}: ${row.why}`, now, { pair, what: "begun" });
    return { row: this.put(row) };
  }
}
