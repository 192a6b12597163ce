// Balance and nodes that drain on the page "Nodes & regions", on a mock of a node whose answers the test gives: who
// balances, what it has decided and why, why nothing moves, and what keeps a node from being emptied.

import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { Browser, keep, NARROW, obstacle, PARALLEL, test, until, violations, violationsOfWidth } from "./browser.mjs";

const MIB = 2 ** 20;

describe("balance", { skip: obstacle ?? false, concurrency: PARALLEL }, () => {
  let browser;
  before(async () => { browser = await Browser.start(); });
  after(async () => { await browser?.close(); });

  const sound = (page) => assert.deepEqual(page.troubles, []);

  async function opened(t) {
    const { page, mock } = await browser.onMock(t, "/console/nodes");
    await page.getByRole("heading", { name: "Balance", exact: true }).waitFor();
    return { page, mock };
  }

  /** What the node answers from now on. */
  const answer = (mock, path, given) => mock.changed.set(path, (document) => Object.assign(document, given));

  /** Waits until all of this stands in a part of the page. */
  const shows = (part, ...all) => until(async () => {
    const text = (await part.innerText()).replace(/\s+/g, " ");
    return all.every((words) => text.includes(words));
  }, all.join(", "));

  const node = (number, more) => ({
    node: number, pairs: 4, bytes: 100 * MIB, bytes_percent: 100, load_share: 0.25, load_percent: 100, draining: false, writes_wait: false,
    words: `node-${number} is at the mean`, ...more,
  });

  test("balance_says_who_balances_what_is_decided_and_why_nothing_moves", async (t) => {
    const { page, mock } = await opened(t);
    const panel = page.locator("#balance");
    await shows(panel, "node 0 balances", "there is too little to be worth balancing");
    assert.equal(await panel.getByRole("table").count(), 0, "of nodes of which nothing is told");
    const nodes = [node(0), node(1, { bytes: 220 * MIB, bytes_percent: 135, load_share: 0.615, load_percent: 180, words: "node-1 is above the mean; rests for 40 s" }), node(2, { draining: true })];
    answer(mock, "balance", { balancer: 2, step: "rest", decision: "nothing is to be done: pair-3 of node-1 takes more than can be moved", nodes });
    await shows(panel, "nothing is to be done", "node 2 balances", "pair-3 of node-1 takes more than can be moved");
    const row = (number) => panel.getByRole("row").filter({ hasText: `node ${number}` });
    await shows(row(1), "220 MiB", "135 %", "61.5 %", "180 %", "rests for 40 s");
    await shows(row(2), "drains");
    assert.doesNotMatch(await row(0).innerText(), /drains|above the mean|no memory/);
    assert.deepEqual(await violations(page, "#main"), []);
    await keep(page, "balance");
    const little = { bytes: 5 * MIB, bytes_percent: null, load_percent: null };
    answer(mock, "balance", { nodes: [node(0, little), node(1, { ...little, writes_wait: true, words: "node-1: 4 pairs; puts find no memory there, where 1.0 MiB is left" })] });
    await shows(row(0), "5 MiB", "–");
    assert.doesNotMatch(await row(0).innerText(), /\s\d+ %/, "too little to count is no part of the mean");
    await shows(row(1), "no memory for puts", "1.0 MiB is left");
    await page.setViewportSize(NARROW);
    await page.waitForFunction(() => document.documentElement.scrollWidth <= innerWidth);
    assert.deepEqual(await violationsOfWidth(page), []);
    sound(page);
  });

  test("balance_shows_the_move_that_is_next_what_was_begun_and_that_nobody_balances", async (t) => {
    const { page, mock } = await opened(t);
    const panel = page.locator("#balance");
    const moves = { above: 3, below: 2, drain: 4, fresh: 7, full: 1, cancelled: 6 };
    answer(mock, "balance", { step: "move", decision: "pair-4 moves from node-0 to node-2: node-0 is 35 % above the mean", moves });
    await shows(panel, "a pair moves", "pair-4 moves from node-0 to node-2: node-0 is 35 % above the mean");
    await shows(panel, "5 moves for balance, 4 for drains, 7 for splits, 1 from full nodes; 6 cancelled");
    answer(mock, "balance", { step: "cancel", decision: "the move of pair-4 is cancelled: node-2 drains", moves });
    await shows(panel, "a move is cancelled", "node-2 drains");
    answer(mock, "balance", { on: false, step: "rest", decision: "nothing is to be done: balance is off" });
    await until(async () => (await panel.locator(".badge").first().innerText()).endsWith("off"), "it is off");
    answer(mock, "balance", { balancer: null });
    await shows(panel, "nobody balances");
    sound(page);
  });

  test("node_that_drains_is_shown_until_it_is_empty_with_what_keeps_it", async (t) => {
    const { page, mock } = await opened(t);
    const panel = page.locator("#nodes-that-drain");
    assert.equal(await panel.count(), 0, "no node drains");
    const drain = { node: 1, who: "ann", why: "new disk", since_unix_ms: Date.now() - 60_000, state: "draining", pairs_left: 3, bytes_left: 600 * MIB, stall: null };
    const is = (more) => answer(mock, "drains", { drains: [{ ...drain, ...more }] });
    is({});
    await shows(panel, "node 1", "is being emptied", "600 MiB", "ann", "new disk");
    assert.match(await panel.innerText(), /\b3\b[^]*\d{4}-\d\d-\d\d/, "pairs that are left, and since when");
    is({ bytes_left: null, stall: "pair-4 cannot move: no other node has room for its 300 MiB" });
    await shows(panel, "does not come on", "pair-4 cannot move: no other node has room", "–");
    assert.deepEqual(await violations(page, "#main"), []);
    await keep(page, "drains");
    is({ state: "drained", pairs_left: 0, bytes_left: 0 });
    await shows(panel, "empty: it can be stopped");
    is({ state: "removed", pairs_left: 0, bytes_left: 0 });
    await shows(panel, "removed for good");
    answer(mock, "drains", { drains: [] });
    await panel.waitFor({ state: "detached" });
    sound(page);
  });
});
