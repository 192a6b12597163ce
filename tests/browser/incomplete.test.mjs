// What the console shows when answers are incomplete, late, broken or refused, on a mock of a node.

import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { Browser, follow, obstacle, PARALLEL, says, test, until, violations } from "./browser.mjs";

/** A client whose setting says who searches: it reports no estimates. */
const TOLD = "9007199254741013/0";
/** A client that has not reported for some seconds. */
const SILENT = "9007199254741017/0";

describe("incomplete", { skip: obstacle ?? false, concurrency: PARALLEL }, () => {
  let browser;
  before(async () => { browser = await Browser.start(); });
  after(async () => { await browser?.close(); });

  const sound = (page) => assert.deepEqual(page.troubles, []);
  const lacks = async (page, text) => assert.equal((await page.locator("#main").innerText()).includes(text), false, `the page says "${text}"`);

  async function opened(t, path, { prepare = () => {}, ...options } = {}) {
    const { page, mock } = await browser.onMock(t, "/console/api", options);
    prepare(mock);
    mock.requests.length = 0; // what counts is what the page below asks
    await page.goto(`${mock.url}/console/${path}`);
    return { page, mock };
  }

  test("selector_of_a_client_without_estimates_shows_dashes", async (t) => {
    const { page } = await opened(t, `selector?pair=${TOLD}`);
    await says(page, "server-side: the client was told so");
    await says(page, "This client is told who searches");
    await says(page, "There is nothing to replay yet");
    assert.equal(await page.locator(".tile").filter({ hasText: "a search, mean" }).locator(".tile-value").innerText(), "–");
    assert.deepEqual(await violations(page, "#main"), []);
    await page.getByRole("button", { name: "All figures" }).click();
    await page.getByRole("table", { name: "Clients and servers" }).waitFor();
    sound(page);
  });

  test("selector_of_a_client_that_went_silent_is_stale_by_its_own_age", async (t) => {
    const { page } = await opened(t, `selector?pair=${SILENT}`);
    await page.locator("#now.is-stale").waitFor();
    await says(page, "Nothing new has come");
    await says(page, "where it searches now is not known");
    // what it did before is not what it does now, and not nothing either
    const rates = page.locator("#reasons .bars td.number");
    assert.ok(await rates.count() >= 15);
    for (const rate of await rates.allInnerTexts()) assert.equal(rate.trim(), "–");
    const cell = page.locator(`.matrix a[href*="${SILENT.split("/")[0]}"]`).first();
    assert.match(await cell.innerText(), /^–/);
    sound(page);
  });

  test("selector_calls_the_smaller_side_less_whatever_the_policy_does", async (t) => {
    const prepare = (mock) => mock.changed.set("selector", ({ pairs }) => pairs.forEach((pair) => {
      Object.assign(pair, { l_s_ns: 4000, one_sided_ns: 9000 });
      Object.assign(pair.decision, { path: "server", server_side_ns: 9000, one_sided_side_ns: 4000 });
    }));
    const { page } = await opened(t, "selector?pair=9007199254741009/0", { prepare });
    const less = (name) => page.locator(".gauge-row").filter({ hasText: name }).getByText("less", { exact: true });
    await less("a search by the server").waitFor();
    assert.equal(await page.getByText("less", { exact: true }).count(), 1);
    // the paper's inequality is no rule of this client's
    await says(page, "Where the paper's rule would turn");
    assert.equal(await page.locator(".gauge-row").filter({ hasText: "l_s − RTT" }).count(), 0);
    await page.locator('.matrix a[href*="9007199254741005"]').first().click();
    await less("m (l_r").waitFor();
    await says(page, "Where the decision turns");
    assert.equal(await page.getByText("less", { exact: true }).count(), 1);
    sound(page);
  });

  test("page_that_cannot_be_drawn_says_so_and_the_others_go_on", async (t) => {
    const { page } = await opened(t, "durability", { prepare: (mock) => mock.changed.set("wal", (document) => { document.pairs = null; }) });
    await says(page, "This page could not be drawn");
    await follow(page, "nodes");
    await says(page, "Pairs and regions");
    sound(page);
  });

  for (const how of ["text", "cut", "stalled"]) {
    test(`answer_that_is_${how}_is_reported_and_asked_for_again`, async (t) => {
      const { page, mock } = await opened(t, "durability", { hasClock: true, prepare: (one) => one.spoilt.set("wal", how) });
      const step = setInterval(() => void page.clock.runFor(1000).catch(() => {}), 300); // the limit of 8 s, on the page's clock
      t.after(() => clearInterval(step));
      await says(page, how === "stalled" ? "its answer did not end within 8 s" : "The answer cannot be read");
      mock.spoilt.clear();
      await says(page, "Syncs by pair");
      await page.waitForFunction(() => document.querySelector(".notice-critical") === null);
      sound(page);
    });
  }

  test("stream_that_never_answers_is_given_up", async (t) => {
    const { page, mock } = await opened(t, "overview", { hasClock: true, prepare: (one) => one.spoilt.set("stream", "silent") });
    const streams = () => mock.requests.filter((request) => request.path === "/api/v1/stream").length;
    await until(() => streams() > 0, "the stream is asked for");
    await says(page, "Loading");
    const before = streams();
    await page.clock.runFor(16_000);
    await page.clock.runFor(3000);
    await until(() => streams() > before, "it is asked again");
    mock.spoilt.clear();
    sound(page);
  });

  test("grouped_buckets_are_not_marked_as_opened", async (t) => {
    const { page } = await opened(t, "tree");
    await page.getByText("×3").filter({ visible: true }).first().waitFor();
    assert.equal(await page.locator(".meganode.is-opened").count(), 0);
    sound(page);
  });

  test("ranges_of_a_node_that_does_not_answer_are_hatched", async (t) => {
    const { page } = await opened(t, "tree", { scenario: "missing" });
    await page.locator(".meganode.is-unreported").first().waitFor();
    await page.getByText("now, of what is told").first().waitFor();
    sound(page);
  });

  test("owner_of_a_served_pair_is_the_one_of_now_though_the_survivor_is_gone", async (t) => {
    const prepare = (mock) => mock.world.incidents.push({
      dead: "9", node: 2, detected_ms: 1_000_000, lease_seen_ms: 1_000_300, all_back_ms: 1_002_000,
      shares: [{ pair: 3, survivor: "8", survivor_node: null, claimed_ms: 1_000_400, cut_ms: 1_000_500, replayed_ms: 1_001_000, replayed_bytes: 9, serving_ms: 1_002_000 }],
    });
    const { page } = await opened(t, "nodes?tables=owners", { prepare });
    const owners = page.getByRole("table", { name: "Owners over time" });
    await page.waitForFunction(() => document.querySelector("#owners-over-time tbody tr:last-child td:last-child")?.textContent === "node 2");
    assert.deepEqual(await owners.locator("tbody td:last-child").allInnerTexts(), ["node 2", "nobody", "node 2"]);
    sound(page);
  });

  // A survivor whose name is gone was drawn as nobody, for as long as it had the pair, and so was one that noted no time.
  test("owner_whose_name_is_gone_is_not_nobody", async (t) => {
    const share = { pair: 3, survivor: "8", survivor_node: null, claimed_ms: 1_000_400, cut_ms: 1_000_500, replayed_ms: 1_001_000, replayed_bytes: 9 };
    const incident = { lease_seen_ms: 1_000_300, all_back_ms: null };
    const prepare = (mock) => mock.world.incidents.push(
      { ...incident, dead: "9", node: 2, detected_ms: 1_000_000, shares: [{ ...share, serving_ms: 1_002_000 }] },
      { ...incident, dead: "8", node: 0, detected_ms: 1_075_000, shares: [{ ...share, serving_ms: 0 }] },
    );
    const { page } = await opened(t, "nodes?tables=owners", { prepare });
    const owners = page.getByRole("table", { name: "Owners over time" });
    await page.waitForFunction(() => document.querySelector("#owners-over-time tbody tr:last-child td:last-child")?.textContent === "node 2");
    assert.deepEqual(await owners.locator("tbody td:last-child").allInnerTexts(), ["node 2", "nobody", "node 0", "not told", "node 2"]);
    sound(page);
  });

  // The second time took the place of the first one, and was said to be the death of incarnation 0.
  test("each_time_that_a_pair_was_nobodys_is_shown", async (t) => {
    const incident = (at) => ({
      dead: "0", node: null, detected_ms: at, lease_seen_ms: 0, all_back_ms: at + 2_000,
      shares: [{ pair: 3, survivor: "8", survivor_node: 2, claimed_ms: at + 400, cut_ms: at + 500, replayed_ms: at + 900, replayed_bytes: 9, serving_ms: at + 1_900 }],
    });
    const prepare = (mock) => mock.world.incidents.push(incident(1_000_000), incident(1_060_000));
    const { page } = await opened(t, "nodes?tables=owners", { prepare });
    const owners = page.getByRole("table", { name: "Owners over time" });
    await page.waitForFunction(() => document.querySelector("#owners-over-time tbody tr:last-child td:last-child")?.textContent === "node 2");
    assert.deepEqual(await owners.locator("tbody td:last-child").allInnerTexts(), ["not told", "nobody", "node 2", "nobody", "node 2"]);
    sound(page);
    const { page: recovery } = await opened(t, "recovery", { prepare });
    await says(recovery, "Pairs were nobody's");
    await lacks(recovery, "ncarnation 0");
    sound(recovery);
  });

  test("region_whose_use_is_not_known_has_no_bar", async (t) => {
    const { page } = await opened(t, "nodes");
    const row = page.getByRole("row").filter({ hasText: "not known" });
    await row.first().waitFor();
    assert.equal(await row.locator(".fill-track").count(), 0);
    sound(page);
  });

  test("node_that_is_absent_has_dashes_and_no_address", async (t) => {
    const { page } = await opened(t, "nodes", { prepare: (mock) => { mock.world.hasAbsent = true; } });
    const row = page.getByRole("table", { name: "Nodes", exact: true }).getByRole("row").filter({ hasText: "node 3" });
    await row.getByText("absent").waitFor();
    assert.equal((await row.innerText()).includes("0 ms"), false);
    assert.equal(await page.getByRole("table", { name: "Addresses" }).getByText("node 3").count(), 0);
    assert.deepEqual(await violations(page, "#main"), []);
    sound(page);
  });

  test("list_that_was_cut_says_how_many_rows_there_are", async (t) => {
    const { page } = await opened(t, "nodes", { prepare: (mock) => mock.changed.set("regions", (document) => Object.assign(document, { truncated: true, total: 70_000 })) });
    await says(page, "not all 70,000 rows are in it");
    sound(page);
  });

  test("durability_draws_syncs_where_the_node_reports_them_and_does_without", async (t) => {
    const { page, mock } = await opened(t, "durability?tables=syncs");
    await page.getByRole("img", { name: /^Syncs took up to/ }).waitFor();
    await page.getByRole("table", { name: "Syncs by how long they took" }).waitFor();
    assert.deepEqual(await violations(page, "#main"), []);
    mock.changed.set("wal", (document) => {
      delete document.sync_times;
      for (const pair of document.pairs) { delete pair.lag_seconds; delete pair.segments; }
    });
    await page.getByRole("heading", { name: "Sync latency over time" }).waitFor({ state: "detached" });
    await says(page, "Logs by pair");
    sound(page);
  });

  test("store_that_is_not_served_whole_is_not_called_empty", async (t) => {
    const prepare = (mock) => {
      mock.changed.set("status", (document) => {
        document.nodes.forEach((node) => { node.entries = 0; });
        document.pairs.served = 3;
      });
      mock.changed.set("tree/buckets", (document) => {
        document.entries_all = 0;
        document.buckets.forEach((bucket) => Object.assign(bucket, { node: null, state: "unserved", entries: 0 }));
      });
    };
    const { page } = await opened(t, "overview", { prepare });
    await says(page, "3 of 6");
    await lacks(page, "The store is empty");
    await follow(page, "tree");
    await page.locator(".meganode.is-unserved").first().waitFor();
    await lacks(page, "The tree is empty");
    sound(page);
  });

  // What the others held passed for all.
  test("entries_are_not_known_while_a_node_does_not_know_its_own", async (t) => {
    const prepare = (mock) => mock.changed.set("status", (document) => {
      Object.assign(document.nodes[0], { state: "recovering", pairs: [], entries: null });
      document.pairs.served = 4;
    });
    const { page } = await opened(t, "overview", { prepare });
    const tile = page.locator(".tile").filter({ has: page.locator(".tile-name").getByText("Entries", { exact: true }) });
    await tile.getByText("not known now").waitFor();
    assert.equal(await tile.locator(".tile-value").innerText(), "–");
    sound(page);
  });

  test("pair_without_syncs_has_no_latency", async (t) => {
    const prepare = (mock) => mock.changed.set("wal", ({ pairs }) => pairs.forEach((pair) => { pair.sync_us = { p50: null, p99: null, max: null }; }));
    const { page } = await opened(t, "durability", { prepare });
    await says(page, "no sync in the last second");
    await lacks(page, "0 ns");
    sound(page);
  });

  // What no node knows of the last second was drawn as zero.
  test("rates_that_nobody_knows_are_dashes_and_no_zeros", async (t) => {
    const prepare = (mock) => {
      mock.changed.set("status", (document) => {
        for (const row of document.operations) Object.assign(row, { per_second: null, p50_us: null, p99_us: null, p999_us: null, max_us: null });
        document.searches = { server_per_second: null, one_sided_per_second: null, one_sided_share: null };
      });
      mock.changed.set("wal", ({ pairs }) => pairs.forEach((pair) => Object.assign(pair, { batches_per_second: null, bytes_per_batch: null, sync_us: { p50: null, p99: null, max: null } })));
      mock.changed.set("nodes", (document) => document.nodes.forEach((node) => { node.operations_per_second = null; }));
    };
    const { page } = await opened(t, "overview", { prepare });
    const value = (name) => page.locator(".tile").filter({ has: page.locator(".tile-name").getByText(name, { exact: true }) }).locator(".tile-value").innerText();
    await says(page, "not known now");
    assert.deepEqual([await value("Operations"), await value("One-sided searches")], ["–", "–"]);
    await follow(page, "durability");
    await says(page, "Syncs by pair");
    assert.deepEqual([await value("Written"), await value("Sync, p99")], ["–", "–"]);
    await follow(page, "nodes");
    const row = page.getByRole("table", { name: "Nodes", exact: true }).getByRole("row").filter({ hasText: "node 1" }).first();
    await row.waitFor();
    assert.equal((await row.innerText()).includes("/s"), false);
    sound(page);
  });

  test("figures_of_the_nodes_that_answered_are_not_called_those_of_all", async (t) => {
    const { page } = await opened(t, "overview", { scenario: "missing" });
    await says(page, "last second, nodes that answered");
    sound(page);
  });

  // They were shown as served until the node's lease had ended.
  test("pairs_of_a_node_that_does_not_answer_are_a_warning_and_not_counted_as_served", async (t) => {
    const { page } = await opened(t, "overview", { scenario: "missing" });
    await says(page, "Keys of these pairs are not known to be available.");
    await says(page, "its node 2 does not answer");
    const tile = page.locator(".tile").filter({ has: page.locator(".tile-name").getByText("Pairs served", { exact: true }) });
    await tile.getByText("2 not known").waitFor();
    assert.match(await tile.locator(".tile-value").innerText(), /^4/);
    assert.equal(await page.locator(".notice-critical").count(), 0);
    assert.deepEqual(await violations(page, "#main"), []);
    sound(page);
  });

  // The newest step that had a figure was said to be now, however old, and a part of the keys was all of them.
  test("heat_of_now_is_of_all_keys_and_of_now", async (t) => {
    const prepare = (mock) => mock.changed.set("tree/heat", (document) => {
      for (const of of ["writes", "reads"]) for (const row of document[of].slice(-3)) if (row) row[0] = null;
    });
    const { page, mock } = await opened(t, "tree?heat=reads", { prepare });
    await page.getByRole("img", { name: /^reads by key over the last 10 min: not known of all keys now/ }).waitFor();
    await says(page, "one-sided reads as clients tell of them");
    mock.changed.clear();
    await page.getByRole("img", { name: /^reads by key over the last 10 min: [0-9.,]+ .*now/ }).waitFor();
    sound(page);
  });

  test("range_that_nobody_tells_of_has_dashes", async (t) => {
    const { page } = await opened(t, "tree?view=table", { scenario: "missing" });
    const row = page.getByRole("table", { name: "Ranges of keys, in order" }).getByRole("row").filter({ hasText: "not known" }).first();
    await row.waitFor();
    const [entries, size, full, height] = (await row.locator("td").allInnerTexts()).slice(3, 7);
    assert.deepEqual([entries, size, full, height], ["–", "–", "–", "–"]);
    sound(page);
  });

  test("selector_of_a_client_that_went_silent_has_no_rates_of_now", async (t) => {
    const { page } = await opened(t, "selector?view=table");
    const row = page.getByRole("table", { name: "Clients and servers" }).getByRole("row").filter({ hasText: "batch-night" }).first();
    await row.waitFor();
    assert.equal((await row.innerText()).includes("/s"), false);
    sound(page);
  });

  test("survivor_whose_name_is_gone_is_not_nobody_yet", async (t) => {
    const prepare = (mock) => mock.world.incidents.push({
      dead: "9", node: 2, detected_ms: 1_000_000, lease_seen_ms: 1_000_300, all_back_ms: 1_002_000,
      shares: [{ pair: 3, survivor: "8", survivor_node: null, claimed_ms: 1_000_400, cut_ms: 1_000_500, replayed_ms: 1_001_000, replayed_bytes: 9, serving_ms: 1_002_000 }],
    });
    const { page } = await opened(t, "recovery", { prepare });
    await says(page, "Pair 3: a node whose life of then is over");
    await lacks(page, "nobody yet");
    sound(page);
  });

  test("tiles_outside_panels_are_grey_and_show_their_age_when_they_are_stale", async (t) => {
    const { page, mock } = await opened(t, "tree", { hasClock: true });
    await page.locator(".tiles").first().waitFor();
    mock.scenario = "silent";
    await page.clock.fastForward(7000);
    await page.locator(".is-stale > .tiles").waitFor();
    await says(page, "Stale: these figures are from");
    mock.scenario = "normal";
    sound(page);
  });

  test("drill_is_drawn_by_the_servers_clock", async (t) => {
    const { page, mock } = await opened(t, "recovery?kind=kill&node=1", { hasClock: true });
    await page.clock.setSystemTime(Date.now() + 3_600_000);
    await says(page, "What it stops");
    await fetch(`${mock.url}/api/v1/drills`, { method: "POST", body: JSON.stringify({ kind: "kill", node: 1, confirm: "node-1" }) });
    mock.world.drill.since = () => 1500; // it stands still during the replay
    await page.locator(".gantt-phase.is-open").first().waitFor();
    const ticks = await page.locator("#drill-run .gantt-tick").allInnerTexts();
    assert.deepEqual(ticks.filter((tick) => /min|h/.test(tick)), []);
    sound(page);
  });

  test("token_that_is_entered_again_is_tried_again", async (t) => {
    const { page, mock } = await opened(t, "data", { scenario: "unauthorised" });
    const form = page.locator("#main > form"); // panels keep theirs until the next answer
    const enter = async () => {
      await form.getByLabel("Token").fill("late-token");
      await form.getByRole("button", { name: "Use it in this tab" }).click();
    };
    await form.waitFor();
    const refused = page.waitForResponse((one) => one.url().includes("/api/v1/kv?") && one.request().headers().authorization === "Bearer late-token");
    await enter();
    await page.waitForFunction(() => sessionStorage.getItem("cell.token") === "late-token");
    await refused;
    await form.waitFor();
    mock.tokens["late-token"] = "admin"; // the node has read its file of tokens again
    await enter();
    await says(page, "amber-0000"); // it was asked for once, and is asked for again
    sound(page);
  });

  test("node_that_takes_no_changes_says_so_before_anything_is_typed", async (t) => {
    const { page } = await opened(t, "tuning?find=client_selector_exploration", { scenario: "read-only" });
    await says(page, "This node takes no changes over HTTP");
    assert.equal(await page.getByRole("textbox", { name: "client_selector_exploration" }).count(), 0);
    await follow(page, "recovery");
    await says(page, "This node takes no changes over HTTP");
    assert.equal(await page.getByRole("button", { name: "Run this drill…" }).isDisabled(), true);
    sound(page);
  });

  test("role_that_does_not_suffice_disables_the_form", async (t) => {
    const prepare = (mock) => mock.changed.set("whoami", (document) => { document.role = "operator"; document.roles = ["viewer", "operator"]; });
    const { page } = await opened(t, "recovery", { prepare });
    await says(page, "Your role is operator: this needs the role admin");
    assert.equal(await page.getByRole("button", { name: "Run this drill…" }).isDisabled(), true);
    await follow(page, "tuning");
    await page.getByRole("textbox", { name: "client_selector_exploration" }).waitFor();
    sound(page);
  });

  test("viewer_sees_the_tree_without_its_keys_and_no_entries_and_is_told_why", async (t) => {
    const { page, mock } = await opened(t, "overview", { scenario: "unauthorised" });
    await page.addInitScript(() => sessionStorage.setItem("cell.token", "viewer-token"));
    await page.goto(`${mock.url}/console/tree?from=61&chosen=62&view=table`);
    await says(page, "Keys and values are for the role reader; your role is viewer.");
    await page.getByRole("table", { name: "Ranges of keys, in order" }).waitFor();
    await page.getByRole("group", { name: /^Key space/ }).focus();
    await page.keyboard.press("Home");
    await page.keyboard.press("+");
    await page.keyboard.press("Enter");
    await says(page, "Levels, from the root down");
    await page.goto(`${page.url()}&tree_node=0&locate=61`);
    await says(page, "What a tree node has is for the role reader");
    await page.goto(`${mock.url}/console/data?key=61`);
    await says(page, "Keys and values are for the role reader; your role is viewer.");
    assert.equal(await page.getByRole("alert").count(), 0, "nothing is an error");
    assert.equal((await page.content()).includes("amber"), false, "and no key is there");
    sound(page);
  });

  test("tree_check_wants_an_operator_and_says_whose_part_is_missing", async (t) => {
    const viewer = (mock) => mock.changed.set("whoami", (document) => { document.role = "viewer"; document.roles = ["viewer"]; });
    const { page } = await opened(t, "tree", { prepare: viewer });
    await says(page, "Your role is viewer: this needs the role operator");
    assert.equal(await page.getByRole("button", { name: "Check the tree" }).isDisabled(), true);
    sound(page);
    const partial = await opened(t, "tree", { scenario: "missing" });
    await partial.page.getByRole("button", { name: "Check the tree" }).click();
    await says(partial.page, "Nobody that answers serves");
    sound(partial.page);
  });

  test("events_by_severity_are_sought_in_all_that_are_kept", async (t) => {
    const prepare = (mock) => {
      for (let index = 0; index < 400; index += 1) mock.world.event("split", "info", 0, `Meganode 1.${index} was split.`, Date.now() - 10_000 + index, { meganode: `1.${index}` });
    };
    const { page, mock } = await opened(t, "events", { prepare });
    await says(page, "The list is cut");
    await page.getByRole("button", { name: "Show 200 more" }).click();
    await page.waitForFunction(() => new URLSearchParams(location.search).get("limit") === "400");
    await page.goto(`${mock.url}/console/events?severity=warning`);
    await says(page, "Writes are refused");
    await page.goto(`${mock.url}/console/events?find=${encodeURIComponent("1.399 was")}`);
    await says(page, "Meganode 1.399 was split");
    assert.equal(await page.locator("tbody tr").count(), 1);
    await page.getByText("Details", { exact: true }).click();
    await says(page, "1.399");
    sound(page);
  });

  test("storage_that_is_blocked_does_not_stop_the_console", async (t) => {
    const { page, mock } = await browser.onMock(t, "/console/api");
    await page.addInitScript(() => {
      const blocked = () => { throw new DOMException("blocked", "SecurityError"); };
      for (const name of ["localStorage", "sessionStorage"]) Object.defineProperty(window, name, { get: blocked });
    });
    await page.goto(`${mock.url}/console/overview`);
    await says(page, "All 3 nodes serve");
    await page.keyboard.press("b");
    await page.waitForFunction(() => document.documentElement.dataset.theme === "light");
    sound(page);
  });
});
