// What an operator does, on a mock of a node: keys, links, zoom, settings, a drill, a stream that breaks.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, before, describe } from "node:test";
import { Browser, follow, keep, obstacle, PARALLEL, says, settled, test, until, violations } from "./browser.mjs";

describe("console", { skip: obstacle ?? false, concurrency: PARALLEL }, () => {
  let browser;
  before(async () => { browser = await Browser.start(); });
  after(async () => { await browser?.close(); });

  async function opened(t, path, options = {}) {
    const { page, mock } = await browser.onMock(t, path, options);
    await ready(page);
    return { page, mock };
  }

  /** Until the console listens to keys: what it does before is lost. It sets the title after that. */
  const ready = (page) => page.waitForFunction(() => document.title.endsWith("– Cell"));
  const heading = (page, name) => page.getByRole("heading", { level: 1, name, exact: true }).waitFor();
  const query = (page, name) => new URL(page.url()).searchParams.get(name);
  const sound = (page) => assert.deepEqual(page.troubles, []);

  test("keys_go_to_every_page_and_show_help", async (t) => {
    const { page } = await opened(t, "/", { hasClock: true });
    await page.clock.setFixedTime(new Date()); // the second key of a pair comes in time, however slow the machine is
    for (const [letter, name] of Object.entries({
      t: "Tree", s: "Selector", n: "Nodes & regions", l: "Durability", r: "Recovery & drills", u: "Tuning", e: "Events", d: "Data", a: "API", o: "Overview",
    })) {
      await page.keyboard.press("g");
      await page.keyboard.press(letter);
      await heading(page, name);
    }
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keys" }).waitFor();
    assert.deepEqual(await violations(page, "dialog"), []);
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    await page.keyboard.press("/");
    assert.equal(await page.evaluate(() => document.activeElement?.id), "search");
    await page.keyboard.press("Escape");
    assert.notEqual(await page.evaluate(() => document.activeElement?.id), "search");
    sound(page);
  });

  test("keyboard_alone_reaches_the_page_by_the_skip_link_and_searches_a_setting", async (t) => {
    const { page } = await opened(t, "/console/overview");
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement?.textContent), "Skip to the page");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
    await page.keyboard.press("/");
    await page.keyboard.type("selector_expl");
    await page.getByRole("option", { name: /client_selector_exploration/ }).waitFor();
    await page.keyboard.press("Enter");
    await heading(page, "Tuning");
    assert.equal(query(page, "find"), "client_selector_exploration");
    sound(page);
  });

  test("theme_chosen_is_kept", async (t) => {
    const { page } = await opened(t, "/console/overview");
    await page.keyboard.press("b");
    await page.keyboard.press("b");
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    await page.reload();
    await ready(page);
    assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
    sound(page);
  });

  test("tree_arrows_choose_enter_opens_and_the_url_holds_it", async (t) => {
    const { page } = await opened(t, "/console/tree");
    const bands = page.getByRole("group", { name: /Key space/ });
    await page.locator(".meganode").first().waitFor();
    await bands.focus();
    for (let step = 0; step < 3; step += 1) await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Enter");
    await page.waitForFunction(() => new URLSearchParams(location.search).has("meganode"));
    const id = query(page, "meganode");
    await page.getByRole("heading", { name: `Meganode ${id}` }).waitFor();
    await page.getByText("Slot map", { exact: true }).waitFor();
    await page.locator("canvas.slot-map").click({ position: { x: 20, y: 5 } });
    await page.getByRole("heading", { name: /^Tree node/ }).waitFor();
    assert.deepEqual(await violations(page, "#main"), []);
    await page.goto(page.url());
    await page.getByRole("heading", { name: /^Tree node/ }).waitFor();
    await keep(page, "tree-meganode");
    sound(page);
  });

  test("tree_drag_zooms_and_back_undoes_it", async (t) => {
    const { page } = await opened(t, "/console/tree");
    await page.locator(".meganode").first().waitFor();
    const before = await page.locator(".meganode").count();
    const box = await page.locator(".bands").boundingBox();
    await page.mouse.move(box.x + box.width * 0.3, box.y + 60);
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.45, box.y + 60, { steps: 4 });
    await page.mouse.up();
    await page.waitForFunction((count) => {
      const shown = document.querySelectorAll(".meganode").length;
      return shown > 0 && shown < count;
    }, before);
    assert.ok(query(page, "from") && query(page, "to"));
    await page.getByRole("button", { name: "Show as a table" }).click();
    await page.getByRole("rowheader").first().waitFor();
    await page.goBack();
    await page.waitForFunction((count) => document.querySelectorAll(".meganode").length >= count, before);
    sound(page);
  });

  test("tree_heat_is_what_nodes_keep_of_ten_minutes_or_an_hour", async (t) => {
    const { page, mock } = await opened(t, "/console/tree?tables=heat");
    const table = page.getByRole("table", { name: "Heat of the last 10 min" });
    await table.locator("tbody tr").nth(59).waitFor();
    const figures = (row) => table.locator("tbody tr").nth(row).locator("td").allInnerTexts();
    assert.match((await figures(1))[0], /^[\d.,]+ k?\/s$/);
    assert.deepEqual((await figures(59)).filter((_, index) => index % 3 !== 1), ["–", "–", "–", "–"], "the mock knows nothing of the oldest");
    await says(page, "hatched: not known");
    await page.getByRole("group", { name: "Heat of the last" }).getByRole("button", { name: "1 h" }).click();
    await page.getByRole("table", { name: "Heat of the last hour" }).waitFor();
    assert.match(page.url(), /back=1h/);
    assert.ok(mock.requests.some(({ path, query }) => path === "/api/v1/tree/heat" && query.includes("step=60")));
    mock.spoilt.set("tree/heat", "text");
    await page.getByRole("alert").first().waitFor();
    assert.ok(await page.locator(".meganode").count() > 0, "owners and icicle stay");
  });

  test("tree_check_shows_how_far_it_is_and_what_it_found", async (t) => {
    const { page, mock } = await opened(t, "/console/tree");
    mock.holdsChecks = true;
    await page.getByRole("button", { name: "Check the tree" }).click();
    await page.getByRole("progressbar", { name: "The check of the tree" }).waitFor();
    mock.holdsChecks = false;
    await says(page, "No violations.");
    assert.match(page.url(), /check=check-0-1/);
    assert.equal(await page.getByRole("group", { name: "The check by node" }).getByRole("rowheader").count(), 3);
    assert.deepEqual(await violations(page, "#main"), []);
    await keep(page, "tree-check");
    const post = mock.requests.find((request) => request.method === "POST" && request.path === "/api/v1/tree:check");
    assert.match(post.headers["idempotency-key"], /^[0-9a-f]{32}$/);
    mock.changed.set("operations/check-0-2", (document) => {
      document.violations = document.nodes[1].violations = 1;
      document.nodes[1].found = [{ pair: 2, slot: 1, index: 7, what: "the low fence of node 7 is wrong" }];
    });
    await page.getByRole("button", { name: "Check the tree" }).click();
    await says(page, "1 violation.");
    await page.getByRole("link", { name: "2.1, 7" }).waitFor();
    assert.deepEqual(await violations(page, "#main"), []);
    sound(page);
  });

  test("selector_another_m_is_a_replay_of_what_was_recorded", async (t) => {
    const { page } = await opened(t, "/console/selector");
    await page.getByRole("link", { name: /% / }).nth(1).click();
    await page.waitForFunction(() => new URLSearchParams(location.search).has("pair"));
    await says(page, "Replay, not a forecast");
    const slider = page.getByRole("slider", { name: "m, reads a search" });
    await slider.focus();
    await page.keyboard.press("Home");
    await page.waitForFunction(() => new URLSearchParams(location.search).get("m") === "1");
    await says(page, "with m = 1.0");
    // with one read a search, one-sided is cheaper at least as often as before
    const values = await page.locator("#replay dd .figure").allTextContents();
    assert.ok(Number.parseFloat(values[0]) >= Number.parseFloat(values[1]), values.join(", "));
    assert.deepEqual(await violations(page, "#main"), []);
    sound(page);
  });

  test("tuning_checks_then_applies_and_reverts", async (t) => {
    const { page, mock } = await opened(t, "/console/tuning?find=client_selector_exploration");
    const field = page.getByRole("textbox", { name: "client_selector_exploration" });
    await field.fill("0.7");
    await page.getByRole("button", { name: "Check only" }).click();
    await says(page, "It takes a number from 0 to 0.5");
    assert.equal(await field.getAttribute("aria-invalid"), "true");
    await field.fill("0.05");
    await page.getByLabel("Reason, for the history").fill("to see the other path");
    await page.getByRole("button", { name: "Check only" }).click();
    await says(page, "Checked: the nodes would take 1 change");
    assert.equal(mock.world.tuning.number("client_selector_exploration"), 0.01);
    assert.deepEqual(await violations(page, "#main"), []);
    await page.getByRole("button", { name: "Apply it" }).click();
    await says(page, "to see the other path");
    assert.equal(mock.world.tuning.number("client_selector_exploration"), 0.05);
    await keep(page, "tuning-applied");
    await says(page, "Applied: 1 change");
    await page.getByRole("button", { name: /^Revert revision/ }).first().click();
    await says(page, "Taking back revision");
    assert.equal(mock.world.tuning.number("client_selector_exploration"), 0.05, "it was shown only");
    await page.getByRole("button", { name: "Take it back" }).click();
    await says(page, "taken back by");
    assert.equal(mock.world.tuning.number("client_selector_exploration"), 0.01);
    sound(page);
  });

  // The confirmation once took the newest revision, and wrote over what nobody had been shown.
  test("tuning_revert_that_another_one_overtook_changes_nothing", async (t) => {
    const { page, mock } = await opened(t, "/console/tuning?find=client_selector_exploration");
    const { tuning } = mock.world;
    tuning.apply({ client_selector_exploration: "0.05" }, "op", "a look", null);
    tuning.apply({ client_selector_exploration: null }, "op", "enough", null);
    const reverted = String(Number(tuning.revision) - 1);
    // the history may come before the settings do, and a revert is checked for the revision of these
    await says(page, `revision ${tuning.revision}`);
    await page.getByRole("button", { name: `Revert revision ${reverted}` }).click();
    await says(page, "Nothing: these values are in force already");
    assert.ok(await page.getByRole("button", { name: "Take it back" }).isDisabled());
    const last = tuning.revision;
    await page.getByRole("button", { name: `Revert revision ${last}` }).click();
    await says(page, `Taking back revision ${last} would set`);
    tuning.apply({ client_selector_exploration: "0.3" }, "another operator", "needed", null);
    await page.getByRole("cell", { name: "another operator" }).waitFor(); // the page has seen it
    await page.getByRole("button", { name: "Take it back" }).click();
    await says(page, "Settings changed meanwhile");
    assert.equal(tuning.number("client_selector_exploration"), 0.3);
    const sent = mock.requests.filter((request) => request.path === "/api/v1/tuning:revert").at(-1);
    assert.equal(sent.headers["if-match"], `"${last}"`);
    sound(page);
  });

  test("tuning_history_is_saved_whole", async (t) => {
    const { page, mock } = await opened(t, "/console/tuning?find=split_fill_percent");
    for (let change = 0; change < 450; change += 1) mock.world.tuning.apply({ split_fill_percent: String(50 + (change % 40)) }, "op", "more", null);
    await says(page, `revision ${mock.world.tuning.revision}`); // the history is not asked for anew any more
    await says(page, "Show older changes");
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: "Save all changes" }).click()]);
    const lines = readFileSync(await download.path(), "utf8").trim().split("\n").map((line) => JSON.parse(line));
    assert.equal(lines.length, 451);
    assert.deepEqual(lines.map((line) => line.revision), mock.world.tuning.history.map((row) => row.revision));
    sound(page);
  });

  test("tuning_that_another_one_overtook_shows_what_changed", async (t) => {
    const { page, mock } = await opened(t, "/console/tuning?find=client_selector_wait_weight");
    await page.getByRole("textbox", { name: "client_selector_wait_weight" }).fill("12");
    mock.scenario = "conflict";
    await page.getByRole("button", { name: "Apply it" }).click();
    await says(page, "Settings changed while you were editing");
    await page.getByRole("alert").getByRole("listitem").filter({ hasText: "split_fill_percent is 80 (85 before)" }).waitFor();
    assert.equal(mock.world.tuning.number("client_selector_wait_weight"), 4);
    await keep(page, "tuning-conflict");
    await page.getByRole("button", { name: /keep my changes/ }).click();
    await page.getByRole("button", { name: "Apply it" }).click();
    await page.waitForFunction(() => document.querySelector(".change-bar") === null);
    assert.equal(mock.world.tuning.number("client_selector_wait_weight"), 12);
    sound(page);
  });

  test("drill_runs_only_after_the_name_was_typed_and_ends_with_a_report", async (t) => {
    const { page, mock } = await opened(t, "/console/recovery?kind=kill&node=1");
    await says(page, "Node 1 owns");
    await page.getByRole("button", { name: "Run this drill…" }).click();
    const dialog = page.getByRole("dialog");
    const run = dialog.getByRole("button", { name: "Kill it" });
    assert.equal(await run.isDisabled(), true);
    await dialog.getByRole("textbox").fill("node-2");
    assert.equal(await run.isDisabled(), true);
    await dialog.getByRole("textbox").fill("node-1");
    assert.deepEqual(await violations(page, "dialog"), []);
    await keep(page, "drill-confirm");
    await run.click();
    await dialog.waitFor({ state: "detached" });
    await page.getByRole("heading", { name: "Drill: kill of node 1" }).waitFor();
    await page.locator(".gantt-replay").first().waitFor();
    await keep(page, "drill-running");
    await page.getByRole("heading", { name: "PASS" }).waitFor();
    assert.deepEqual(await violations(page, "#main"), []);
    await keep(page, "drill-report");
    const post = mock.requests.find((request) => request.method === "POST" && request.path === "/api/v1/drills");
    assert.match(post.headers["idempotency-key"], /^[0-9a-f]{32}$/);
    sound(page);
  });

  test("events_filter_lives_in_the_url_and_files_have_what_is_shown", async (t) => {
    const { page } = await opened(t, "/console/events");
    await says(page, "was split at");
    await says(page, "complete since"); // what nodes saw before that is gone
    await page.getByLabel("Kind").selectOption("checkpoint");
    await page.waitForFunction(() => new URLSearchParams(location.search).get("kind") === "checkpoint");
    await says(page, "A checkpoint of pair");
    await page.waitForFunction(() => !document.body.innerText.includes("was split at"));
    await settled(page); // what is listed anew with the filter is there
    const rows = await page.locator("tbody tr").count();
    assert.ok(rows > 0);
    for (const [button, count] of [["Save as JSON lines", (text) => text.trimEnd().split("\n").length], ["Save as CSV", (text) => text.trimEnd().split("\r\n").length - 1]]) {
      const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: button }).click()]);
      const text = readFileSync(await download.path(), "utf8");
      assert.equal(count(text), rows, button);
    }
    sound(page);
  });

  test("data_seeks_shows_a_value_and_goes_further_and_back", async (t) => {
    const { page, mock } = await opened(t, "/console/data");
    await page.getByLabel(/Key or prefix/).fill("cedar-01");
    await page.getByRole("button", { name: "List this prefix" }).click();
    await page.getByRole("link", { name: "cedar-0100" }).waitFor();
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByRole("link", { name: "cedar-0150" }).waitFor();
    await page.getByRole("button", { name: "Previous" }).click();
    await page.getByRole("link", { name: "cedar-0100" }).click();
    await says(page, "Where it lives");
    await says(page, "a value of cedar-0100");
    await keep(page, "data-entry");
    assert.deepEqual(await violations(page, "#main"), []);
    await page.goto(`${mock.url}/console/data?key=${Buffer.from("nothing").toString("hex")}`);
    await says(page, "There is no such key");
    sound(page);
  });

  test("api_tries_a_get", async (t) => {
    const { page } = await opened(t, "/console/api");
    await page.getByText("/api/v1/nodes").click();
    await page.locator("details[open]").getByRole("button", { name: "Try it" }).click();
    await says(page, '"operations_per_second"');
    for (const words of ["nodes[].cpu_cores_used", "number or null", "Processors that it keeps busy.", "nodes[].key.hex"]) await says(page, words);
    assert.deepEqual(await violations(page, "details[open]"), []);
    sound(page);
  });

  test("stream_that_breaks_is_taken_up_again_with_the_last_id", async (t) => {
    const { page, mock } = await opened(t, "/console/overview");
    await page.locator(".live:not(.live-off)").first().waitFor();
    await page.locator(".topbar-status").waitFor(); // an event has come
    const again = page.waitForRequest((request) => new URL(request.url()).pathname === "/api/v1/stream");
    mock.cutStreams();
    assert.match((await again).headers()["last-event-id"] ?? "", /^\d+$/);
    await (await again).response();
    await page.waitForFunction(() => document.querySelector(".live-off") === null);
    await until(() => mock.streams.size === 1, "one stream a tab");
    sound(page);
  });

  // The badge in the bar, on every page, and the verdict stayed green whatever came.
  test("badge_and_verdict_are_not_known_while_no_data_comes_and_good_again_after", async (t) => {
    const { page, mock } = await opened(t, "/console/overview", { hasClock: true });
    await page.locator(".topbar-status .sign-ok").waitFor();
    await page.locator(".verdict-ok").waitFor();
    mock.scenario = "silent";
    await page.clock.runFor(8000);
    await page.locator(".topbar-status .sign-unknown").waitFor();
    await page.locator(".verdict-unknown").waitFor();
    await says(page, "How the cluster is now is not known.");
    assert.equal(await page.locator(".sign-ok:visible").count(), 0, "nothing is green");
    assert.deepEqual(await violations(page, ".topbar"), []);
    mock.scenario = "normal";
    await page.locator(".topbar-status .sign-ok").waitFor();
    sound(page);
  });

  test("tabs_share_one_stream_and_the_next_one_reads_when_the_reader_is_closed", async (t) => {
    const { page, mock } = await opened(t, "/console/overview");
    const live = (one) => one.locator(".live:not(.live-off)").first().waitFor();
    await live(page);
    const second = await browser.page(t, mock.url);
    await second.goto(`${mock.url}/console/selector`);
    await says(second, "web-frontend-1"); // a topic that the first one does not follow
    await live(second);
    const first = await until(() => mock.streams.size === 1 && [...mock.streams][0], "one stream for both");
    await page.close();
    await until(() => mock.streams.size === 1 && !mock.streams.has(first), "one stream for the tab that is left");
    await live(second);
    sound(second);
  });

  test("hidden_tab_asks_for_nothing_until_it_is_shown_again", async (t) => {
    const { page, mock } = await opened(t, "/console/durability", { hasClock: true });
    await says(page, "Logs by pair");
    const turn = (isHidden) => page.evaluate((value) => {
      Object.defineProperty(document, "hidden", { value, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, isHidden);
    /** Lets time pass for the page; when its last request is answered, what it asked before has come, too. */
    const pass = async (ms) => {
      await page.clock.runFor(ms);
      await page.evaluate(() => fetch("/api/v1/whoami").then((response) => response.text()));
    };
    await turn(true);
    await until(() => mock.streams.size === 0, "the stream is left");
    await pass(5000); // what was under way may still come
    const before = mock.requests.length;
    await pass(30_000); // a page that goes on asks at least each second
    assert.deepEqual(mock.requests.slice(before).map((one) => one.path), ["/api/v1/whoami"]);
    assert.equal(mock.streams.size, 0);
    await turn(false);
    await page.locator(".live:not(.live-off)").first().waitFor();
    assert.ok(mock.requests.length > before + 1);
    sound(page);
  });

  test("slider_moves_the_address_when_it_rests_and_the_line_is_a_slider_too", async (t) => {
    const { page } = await opened(t, "/console/selector", { hasClock: true });
    const line = page.getByRole("slider", { name: "m, the slope of the decision line" });
    await line.waitFor();
    await page.evaluate(() => {
      const replace = history.replaceState.bind(history);
      globalThis.changes = 0;
      history.replaceState = (...rest) => { globalThis.changes += 1; replace(...rest); };
    });
    // the slider is as fast as the page, however busy; a time that has passed when the clock is to stop is refused
    const stop = async () => page.clock.pauseAt(await page.evaluate(() => Date.now() + 1000));
    await until(() => stop().then(() => true, () => false), "the page's clock stands still");
    for (let m = 2; m < 8; m += 0.1) {
      await page.evaluate((value) => {
        const slider = document.querySelector("input[type=range]");
        slider.value = value;
        slider.dispatchEvent(new Event("input", { bubbles: true }));
      }, m.toFixed(1));
      await page.clock.runFor(5);
    }
    assert.equal(await page.evaluate(() => globalThis.changes), 0, "it has not rested yet");
    await page.clock.runFor(600);
    assert.equal(await page.evaluate(() => globalThis.changes), 1);
    await page.clock.resume();
    const before = Number(await line.getAttribute("aria-valuenow"));
    await line.focus();
    await page.keyboard.press("PageUp");
    await page.waitForFunction((m) => Math.abs(Number(new URLSearchParams(location.search).get("m")) - m - 1) < 0.01, before);
    // a drag to the plot's upper left is a steep line
    const box = await page.locator("svg.phase").boundingBox();
    await page.locator(".phase-grip-knob").hover();
    await page.mouse.down();
    await page.mouse.move(box.x + box.width * 0.2, box.y + box.height * 0.1, { steps: 4 });
    await page.mouse.up();
    await page.waitForFunction((m) => Number(new URLSearchParams(location.search).get("m")) > m + 1, before);
    sound(page);
  });

  test("tree_minus_steps_out_and_leaves_the_browsers_own_keys_alone", async (t) => {
    const { page } = await opened(t, "/console/tree");
    await page.locator(".meganode").first().waitFor();
    const bands = page.getByRole("group", { name: /Key space/ });
    await bands.focus();
    const ranges = [];
    for (let step = 0; step < 2; step += 1) {
      for (let right = 0; right < 4; right += 1) await page.keyboard.press("ArrowRight");
      await page.waitForFunction(() => new URLSearchParams(location.search).has("chosen"));
      const before = page.url();
      await page.keyboard.press("+");
      await page.waitForFunction((url) => new URL(url).searchParams.get("from") !== new URLSearchParams(location.search).get("from") || new URL(url).searchParams.get("to") !== new URLSearchParams(location.search).get("to"), before);
      ranges.push(`${query(page, "from")}-${query(page, "to")}`);
    }
    await bands.press("Control+Minus");
    assert.equal(`${query(page, "from")}-${query(page, "to")}`, ranges[1]);
    await bands.press("-");
    assert.equal(`${query(page, "from")}-${query(page, "to")}`, ranges[0]);
    await bands.press("-");
    assert.equal(query(page, "from"), null);
    sound(page);
  });

  test("tree_plus_zooms_also_when_the_last_zoom_left_the_chosen_meganode_outside", async (t) => {
    const { page } = await opened(t, "/console/tree");
    const chosen = page.locator(".meganode.is-chosen");
    await page.locator(".meganode").first().waitFor();
    const bands = page.getByRole("group", { name: /Key space/ });
    let answer;
    const isAnswered = new Promise((resolve) => { answer = resolve; });
    await page.route(/tree\/buckets\?.*from=/, async (route) => {
      await isAnswered;
      await route.continue();
    });
    const press = async (key, times) => { for (let done = 0; done < times; done += 1) await bands.press(key); };
    await press("ArrowRight", 4);
    await bands.press("+");
    const from = query(page, "from");
    await press("ArrowRight", 4); // the old range is still shown
    await chosen.waitFor();
    answer();
    await chosen.waitFor({ state: "detached" });
    await bands.press("+");
    assert.notEqual(query(page, "from"), from);
    assert.equal(query(page, "outside").split(",").length, 1);
    sound(page);
  });

  test("overview_counts_one_sided_searches_and_looks_back_for_hours", async (t) => {
    const { page } = await opened(t, "/console/overview");
    await page.getByRole("rowheader", { name: "one-sided search" }).waitFor();
    await page.locator(".tile").filter({ hasText: /one-sided$/ }).first().waitFor();
    const request = page.waitForRequest((one) => one.url().includes("/api/v1/series?") && one.url().includes("seconds=21600&step=60"));
    await page.getByRole("button", { name: "6 h", exact: true }).click();
    await page.getByRole("heading", { name: "Last six hours" }).waitFor();
    await request;
    assert.equal(query(page, "range"), "6h");
    sound(page);
  });

  test("tuning_that_is_sent_again_has_the_same_idempotency_key", async (t) => {
    const { page, mock } = await opened(t, "/console/tuning?find=client_selector_exploration");
    const field = page.getByRole("textbox", { name: "client_selector_exploration" });
    await field.fill("0.05");
    mock.spoilt.set("tuning", "cut");
    await page.getByRole("button", { name: "Apply it" }).click();
    await page.locator(".change-bar").getByText("The answer cannot be read").waitFor(); // the panel below asks, too
    mock.spoilt.clear();
    await page.getByRole("button", { name: "Apply it" }).click();
    await says(page, "Applied: 1 change");
    const keys = mock.requests.filter((request) => request.method === "PATCH").map((request) => request.headers["idempotency-key"]);
    assert.equal(keys.length, 2);
    assert.match(keys[0], /^[0-9a-f]{32}$/);
    assert.equal(keys[0], keys[1]);
    sound(page);
  });

  test("drill_strikes_what_the_dialog_was_opened_for", async (t) => {
    const { page, mock } = await opened(t, "/console/recovery?kind=kill&node=1&rate=500");
    await says(page, "Node 1 owns");
    await page.getByRole("button", { name: "Run this drill…" }).click();
    await page.evaluate(() => {
      history.replaceState(null, "", "?kind=stop&node=2");
      dispatchEvent(new PopStateEvent("popstate"));
    });
    await says(page, "SIGSTOP past its lease"); // the page behind it is another one now
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("textbox").fill("node-1");
    await dialog.getByRole("button", { name: "Kill it" }).click();
    await dialog.waitFor({ state: "detached" });
    await page.getByRole("heading", { name: "Drill: kill of node 1" }).waitFor();
    const sent = JSON.parse(mock.requests.find((request) => request.method === "POST" && request.path === "/api/v1/drills").body);
    const { preview, ...drill } = sent;
    assert.deepEqual(drill, { kind: "kill", node: 1, confirm: "node-1", down_ms: 3000, before_ms: 2000, threads: 4, rate: 500, keep: false });
    assert.match(preview, /^kill 1 /);
    sound(page);
  });

  test("drill_whose_preview_is_not_true_any_more_is_not_begun", async (t) => {
    const { page, mock } = await opened(t, "/console/recovery?kind=kill&node=1");
    await says(page, "Node 1 owns");
    await page.getByRole("button", { name: "Run this drill…" }).click();
    const { world } = mock;
    const owner = world.ownerOf.bind(world);
    world.ownerOf = (pair) => (pair === 2 ? 0 : owner(pair)); // another node has taken it over
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("textbox").fill("node-1");
    await dialog.getByRole("button", { name: "Kill it" }).click();
    await dialog.waitFor({ state: "detached" });
    await says(page, "The drill has not begun: kill of node 1");
    await says(page, "its preview is not true any more");
    assert.equal(world.runs.length, 0);
    world.ownerOf = owner; // what is sent again is the same request
    await page.getByRole("button", { name: "Ask again" }).click();
    await page.getByRole("heading", { name: "Drill: kill of node 1" }).waitFor();
    const sent = mock.requests.filter((request) => request.method === "POST" && request.path === "/api/v1/drills");
    assert.equal(sent.length, 2);
    assert.deepEqual([sent[1].body, sent[1].headers["idempotency-key"]], [sent[0].body, sent[0].headers["idempotency-key"]]);
    assert.equal(await page.getByText("The drill has not begun").count(), 0);
    sound(page);
  });

  /** The dialog stood there for up to 30 s, without a word of what was going on. */
  test("drill_that_waits_for_its_begin_is_shown_at_once_and_keeps_nobody", async (t) => {
    const { page, mock } = await opened(t, "/console/recovery?kind=kill&node=1");
    mock.holdsDrills = true;
    await says(page, "Node 1 owns");
    await page.getByRole("button", { name: "Run this drill…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("textbox").fill("node-1");
    await dialog.getByRole("button", { name: "Kill it" }).click();
    await dialog.waitFor({ state: "detached" });
    await says(page, "Asked for: kill of node 1, by admin. It waits for the agent at 10.0.0.2:7400.");
    await page.getByRole("heading", { name: "Drill: kill of node 1" }).waitFor(); // as every other console shows it
    await says(page, "nothing is done yet");
    assert.equal(await page.getByRole("button", { name: "Run this drill…" }).isDisabled(), true);
    assert.deepEqual(await violations(page, "#main"), []);
    await keep(page, "drill-beginning");
    await follow(page, "events");
    mock.beginning.begin(); // it begins while another page is shown
    await follow(page, "recovery");
    await page.waitForURL(/\/console\/recovery\?.*run=drill-1/);
    await page.getByRole("button", { name: "Halt and heal" }).waitFor();
    assert.equal(await page.getByText("Asked for:").count(), 0);
    sound(page);
  });

  test("drill_out_of_bounds_cannot_be_started", async (t) => {
    const { page } = await opened(t, "/console/recovery?kind=kill&node=1");
    await says(page, "Node 1 owns");
    await page.getByRole("spinbutton", { name: /^Clients/ }).fill("17");
    await page.waitForFunction(() => [...document.querySelectorAll("button")].some((button) => button.textContent === "Run this drill…" && button.disabled));
    sound(page);
  });

  /** Presses Tab until this has the focus. */
  async function tabTo(page, locator, most = 80) {
    for (let press = 0; press < most; press += 1) {
      if (await locator.evaluate((element) => element === document.activeElement)) return;
      await page.keyboard.press("Tab");
    }
    assert.fail("it is not reached by Tab");
  }

  test("keyboard_alone_starts_a_drill", async (t) => {
    const { page } = await opened(t, "/console/recovery?kind=kill&node=1");
    await says(page, "Node 1 owns");
    await page.locator("#main").focus();
    await tabTo(page, page.getByRole("button", { name: "Run this drill…" }));
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog");
    await dialog.waitFor();
    await tabTo(page, dialog.getByRole("textbox"), 10);
    await page.keyboard.type("node-1");
    await page.keyboard.press("Enter");
    await dialog.waitFor({ state: "detached" });
    await page.getByRole("heading", { name: "Drill: kill of node 1" }).waitFor();
    sound(page);
  });

  test("keyboard_alone_changes_a_setting", async (t) => {
    const { page, mock } = await opened(t, "/console/tuning?find=client_selector_exploration");
    const field = page.getByRole("textbox", { name: "client_selector_exploration" });
    await field.waitFor();
    await page.locator("#main").focus();
    await tabTo(page, field);
    await page.keyboard.press("Control+a");
    await page.keyboard.type("0.04");
    const apply = page.getByRole("button", { name: "Apply it" });
    for (let press = 0; press < 80 && !(await apply.evaluate((element) => element === document.activeElement)); press += 1) await page.keyboard.press("Shift+Tab");
    await page.keyboard.press("Enter");
    await says(page, "Applied: 1 change");
    assert.equal(mock.world.tuning.number("client_selector_exploration"), 0.04);
    sound(page);
  });

  test("link_into_the_middle_of_the_data_knows_its_pages", async (t) => {
    const { page, mock } = await opened(t, "/console/data?prefix=63656461722d");
    for (const first of ["cedar-0050", "cedar-0100"]) {
      await page.getByRole("button", { name: "Next" }).click();
      await page.getByRole("link", { name: first }).waitFor();
    }
    const address = page.url();
    await page.goto(`${mock.url}/console/nodes`);
    await page.goto(address);
    await page.getByRole("button", { name: "Previous" }).click();
    await page.getByRole("link", { name: "cedar-0050" }).waitFor();
    await page.goto(`${mock.url}/console/data?prefix=5c0ac3a9ff61`);
    assert.equal(await page.getByLabel(/Key or prefix/).inputValue(), "\\\\\\x0aé\\xffa");
    sound(page);
  });

  test("narrow_screen_has_a_drawer_with_all_pages", async (t) => {
    const { page } = await opened(t, "/console/overview");
    await page.setViewportSize({ width: 390, height: 844 });
    await page.getByRole("button", { name: "Pages" }).click();
    await page.getByRole("dialog").waitFor();
    await keep(page, "drawer-narrow");
    assert.deepEqual(await violations(page, "dialog"), []);
    await page.getByRole("dialog").getByRole("link", { name: /Durability/ }).click();
    await heading(page, "Durability");
    await page.getByRole("dialog").waitFor({ state: "detached" });
    sound(page);
  });

  test("unknown_page_says_so", async (t) => {
    const { page } = await opened(t, "/console/nothing");
    await says(page, "There is no page /console/nothing");
    sound(page);
  });
});
