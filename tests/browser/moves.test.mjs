// Planned moves of pairs on the page "Nodes & regions", on a mock of a node whose moves the test knows and changes.

import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { Browser, keep, NARROW, obstacle, PARALLEL, says, test, until, violations, violationsOfWidth } from "./browser.mjs";

const MIB = 2 ** 20;

describe("moves", { skip: obstacle ?? false, concurrency: PARALLEL }, () => {
  let browser;
  before(async () => { browser = await Browser.start(); });
  after(async () => { await browser?.close(); });

  const sound = (page) => assert.deepEqual(page.troubles, []);
  const table = (page, name) => page.getByRole("table", { name });
  const underWay = (page, pair) => table(page, "Moves under way").getByRole("row").filter({ hasText: `pair ${pair}` });
  const over = (page, pair) => table(page, "Moves that are over").getByRole("row").filter({ hasText: `pair ${pair}` });
  const posts = (mock, path) => mock.requests.filter((one) => one.method === "POST" && one.path === `/api/v1/${path}`);

  async function opened(t, query = "", options = {}) {
    const { page, mock } = await browser.onMock(t, `/console/nodes${query}`, options);
    await page.getByRole("heading", { name: "Pairs that move" }).waitFor();
    return { page, mock };
  }

  /** Asks what it would do, and gives the dialog that shows it. */
  async function shown(page, name) {
    await page.getByRole("button", { name: "Show what it would do…" }).click();
    const dialog = page.getByRole("dialog", { name });
    await dialog.waitFor();
    return dialog;
  }

  test("moves_show_what_moves_where_and_how_far_and_what_became_of_it", async (t) => {
    const { page, mock } = await opened(t);
    const row = underWay(page, 4);
    for (const words of ["node 0", "node 2", "copying", "222 MiB of 600 MiB, 37 %", "ann: node 0 is full"]) await row.getByText(words).first().waitFor();
    assert.match(await row.innerText(), /\d+(\.\d+)? (s|min)\b/, "since when");
    assert.equal(await row.getByRole("progressbar").getAttribute("value"), "0.37");
    await over(page, 2).getByText("moved").waitFor();
    for (const words of ["given up: it stayed", "its target has ended"]) await over(page, 6).getByText(words).waitFor();
    assert.deepEqual(await violations(page, "#main"), []);
    await keep(page, "moves");
    await page.setViewportSize(NARROW);
    await page.waitForFunction(() => document.documentElement.scrollWidth <= innerWidth);
    assert.deepEqual(await violationsOfWidth(page), []);
    await keep(page, "moves-narrow");
    // it goes on: further, ready, handed over, over
    Object.assign(mock.moves.of(4), { bytes_done: 600 * MIB });
    await row.getByText("600 MiB copied, catching up").waitFor();
    mock.moves.of(4).stage = "ready";
    await row.getByText("to be handed over next").waitFor();
    mock.moves.of(4).stage = "handed";
    await row.getByText("too late to cancel").waitFor();
    assert.equal(await row.getByRole("button").count(), 0);
    Object.assign(mock.moves.of(4), { outcome: "back", because: "its target did not serve it in time", over_unix_ms: Date.now() });
    await says(page, "No pair is on its way.");
    for (const words of ["went back", "its target did not serve it in time"]) await over(page, 4).getByText(words).waitFor();
    sound(page);
  });

  test("move_of_which_little_is_known_has_dashes_and_no_zeros", async (t) => {
    const { page, mock } = await opened(t);
    Object.assign(mock.moves.of(4), { stage: "wanted", bytes_done: 0, bytes_total: 0, wanted_unix_ms: null });
    await underWay(page, 4).getByText("not known yet").waitFor();
    const text = await underWay(page, 4).innerText();
    assert.match(text, /asked for/);
    assert.doesNotMatch(text, /0 B|0 %|NaN|0 ms/);
    assert.equal(await underWay(page, 4).getByRole("progressbar").count(), 0);
    sound(page);
  });

  test("move_is_shown_first_and_begun_as_it_was_shown", async (t) => {
    const { page, mock } = await opened(t, "?move=1&to=1");
    await says(page, "Node 0 has pair 1.");
    await page.getByLabel("Reason, for those who look at moves").fill("more room");
    const dialog = await shown(page, "Move pair 1 from node 0 to node 1?");
    await dialog.getByText("Nothing has been done yet.").waitFor();
    assert.equal(mock.moves.of(1), undefined);
    assert.deepEqual(posts(mock, "moves").map((one) => one.query), ["?dry_run=1"]);
    assert.deepEqual(await violations(page, "dialog"), []);
    await keep(page, "moves-confirm");
    await dialog.getByRole("button", { name: "Move it" }).click();
    await dialog.waitFor({ state: "detached" });
    await underWay(page, 1).getByText("asked for").waitFor();
    await underWay(page, 1).getByText("admin: more room").waitFor();
    const sent = posts(mock, "moves").at(-1);
    assert.deepEqual([sent.headers["if-match"], sent.query, JSON.parse(sent.body)], [`"${mock.moves.of(1).revision}"`, "?reason=more%20room", { pair: 1, to: 1 }]);
    assert.match(sent.headers["idempotency-key"], /^[0-9a-f]{32}$/);
    await page.reload();
    await underWay(page, 1).waitFor();
    assert.equal(await page.getByLabel("Pair to move").inputValue(), "1", "what was chosen is in the address");
    sound(page);
  });

  // The node waits for its coordinator, and was given up before it said what the move would be: on a busy machine none
  // could be asked for here.
  test("move_that_takes_longer_to_preview_than_a_question_may_take_is_shown", async (t) => {
    const { page } = await opened(t, "?move=1&to=1", { hasClock: true });
    await says(page, "Node 0 has pair 1.");
    const held = [];
    await page.route((url) => url.search === "?dry_run=1", (route) => held.push(route));
    await page.getByRole("button", { name: "Show what it would do…" }).click();
    await until(() => held.length > 0, "the question");
    await page.clock.fastForward(9000);
    await held[0].continue();
    await page.getByRole("dialog", { name: "Move pair 1 from node 0 to node 1?" }).waitFor();
    sound(page);
  });

  test("move_is_begun_by_keys_alone", async (t) => {
    const { page, mock } = await opened(t);
    await page.getByLabel("Pair to move").focus();
    await page.keyboard.type("3");
    await says(page, "Node 2 has pair 3.");
    await until(() => page.getByRole("button", { name: "Show what it would do…" }).isEnabled(), "who it may go to");
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: /^Move pair 3 from node 2/ }).waitFor();
    await page.getByRole("button", { name: "Move it" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await until(() => mock.moves.of(3)?.outcome === null, "the move");
    sound(page);
  });

  test("move_that_another_one_overtook_is_not_begun", async (t) => {
    const { page, mock } = await opened(t, "?move=1&to=1");
    const dialog = await shown(page, "Move pair 1 from node 0 to node 1?");
    mock.moves.put({ ...mock.moves.plan(1, 2, "another operator", Date.now()), outcome: "cancelled" });
    await dialog.getByRole("button", { name: "Move it" }).click();
    await dialog.getByRole("alert").getByText("Nothing was done").waitFor();
    assert.ok(await dialog.getByRole("button", { name: "Move it" }).isDisabled());
    assert.equal(mock.moves.of(1).why, "another operator");
    assert.deepEqual(await violations(page, "dialog"), []);
    await dialog.getByRole("button", { name: "Leave it" }).click();
    await shown(page, "Move pair 1 from node 0 to node 1?");
    await page.getByRole("button", { name: "Move it" }).click();
    await underWay(page, 1).waitFor();
    sound(page);
  });

  test("move_that_cannot_be_says_why_and_what_next", async (t) => {
    const { page, mock } = await opened(t, "?move=1&to=2");
    mock.moves.full.add(2);
    await page.getByRole("button", { name: "Show what it would do…" }).click();
    const alert = page.getByRole("alert");
    for (const words of ["it would hold too much", "choose a node with more room"]) await alert.getByText(words).waitFor();
    await page.getByLabel("Pair to move").fill("9");
    await page.getByRole("button", { name: "Show what it would do…" }).click();
    await alert.getByText("There is no pair-9.").waitFor();
    await page.getByLabel("Pair to move").fill("4");
    await says(page, "It is on its way already.");
    assert.deepEqual(await violations(page, "#main"), []);
    await page.getByLabel("Pair to move").fill("four");
    await says(page, "A pair is a number.");
    assert.ok(await page.getByRole("button", { name: "Show what it would do…" }).isDisabled());
    sound(page);
  });

  test("move_is_cancelled_until_the_handing_and_no_other_one_than_was_shown", async (t) => {
    const { page, mock } = await opened(t);
    const cancel = async () => {
      await page.getByRole("button", { name: "Cancel the move of pair 4" }).click();
      const dialog = page.getByRole("dialog", { name: "Cancel the move of pair 4?" });
      await dialog.waitFor();
      return dialog;
    };
    const late = await cancel();
    assert.deepEqual(await violations(page, "dialog"), []);
    mock.moves.of(4).stage = "handed";
    await late.getByRole("button", { name: "Cancel the move" }).click();
    await late.getByRole("alert").getByText("has been handed over").waitFor();
    await underWay(page, 4).getByText("too late to cancel").waitFor(); // no older answer is under way
    await late.getByRole("button", { name: "Let it go on" }).click();
    mock.moves.of(4).stage = "copying";
    const dialog = await cancel();
    await dialog.getByRole("button", { name: "Cancel the move" }).click();
    await dialog.waitFor({ state: "detached" });
    await over(page, 4).getByText("cancelled by admin").waitFor();
    assert.equal(posts(mock, "moves:cancel").at(-1).headers["if-match"], `"${mock.moves.of(4).revision}"`);
    sound(page);
  });

  test("moves_are_read_by_those_who_may_not_change_them", async (t) => {
    const { page } = await opened(t, "?move=1&to=1", { scenario: "read-only" });
    await underWay(page, 4).waitFor();
    await says(page, "This node takes no changes over HTTP");
    for (const name of ["Show what it would do…", "Cancel the move of pair 4"]) {
      await until(() => page.getByRole("button", { name }).isDisabled(), `${name} is not offered`);
    }
    sound(page);
  });
});
