// The console that a real node serves, on a cluster of three under load.

import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { Browser, clickIfThere, follow, keep, obstacle, PAGES, part, settled, test, until } from "./browser.mjs";
import { Cluster, clusterObstacle } from "./cluster.mjs";

const lacking = obstacle ?? clusterObstacle;
/** A lease that a busy machine can keep. */
const LEASE = ["--lease-ms", "5000"];
/** Pages of which a node serves all data; the others may say that a route is not there. */
const SERVED = new Set(["overview", "selector", "nodes", "durability", "events", "tree", "recovery", "tuning", "data"]);
/** All that the console is made of; how long it takes to paint is a figure (benches/RESULTS.md), no test. */
const FILES = ["/console/console.css", "/console/console.js", "/console/overview"];
/** How often a move is asked for. */
const MOVES_MAX = 10;
const ENTRIES = Array.from({ length: 3000 }, (_, index) => [`word-${String(index).padStart(5, "0")}`, `value of ${index}`]);

if (lacking) {
  test("console_of_a_cluster", () => console.log(`SKIPPED: the console of a cluster: ${lacking}`));
} else {
  describe("cluster", () => {
    let cluster;
    let browser;
    before(async () => {
      cluster = await Cluster.start(LEASE);
      await cluster.load(ENTRIES);
      await cluster.drive();
      browser = await Browser.start();
    });
    after(async () => {
      await browser?.close();
      assert.equal(await cluster?.close(), 0, "the cluster ends in order");
    });

    async function opened(t, node, name) {
      const page = await browser.page(t, cluster.url(node));
      const response = await page.goto(`${cluster.url(node)}/console/${name}`);
      assert.equal(response.status(), 200);
      return page;
    }

    /** From the begin of the navigation until the browser has painted anything of the page. */
    const firstPaintMs = (page) => page.evaluate(() => new Promise((resolve) => {
      const tell = (entries) => entries.filter(({ name }) => name === "first-contentful-paint").forEach((entry) => resolve(entry.startTime));
      new PerformanceObserver((list) => tell(list.getEntries())).observe({ type: "paint", buffered: true });
    }));

    /** What the overview shows under a name, as text; empty while it is not there. */
    const tile = (page, name) => page.locator(".tile").filter({ hasText: name }).locator(".tile-value").first().innerText();

    test("overview_of_each_node_shows_all_three_and_operations_that_move", async (t) => {
      for (const { node } of cluster.nodes) {
        const page = await opened(t, node, "overview");
        const rows = page.getByRole("table", { name: "Nodes", exact: true }).locator("tbody tr");
        // a node that is late has no row until the next second
        await until(async () => (await rows.locator("th").allInnerTexts()).join() === "node 0,node 1,node 2", "rows of all three nodes");
        await page.locator(".live:not(.live-off)").first().waitFor();
        // more than none, and not the same all the time
        const rate = page.locator(".tile").filter({ hasText: "last second, all nodes" }).locator(".tile-value");
        await rate.filter({ hasText: /[1-9]/ }).waitFor();
        const seen = await rate.innerText();
        await page.waitForFunction((before) => {
          const tiles = [...document.querySelectorAll(".tile")].filter((one) => one.textContent.includes("last second, all nodes"));
          return tiles.some((one) => one.querySelector(".tile-value").innerText !== before);
        }, seen);
        assert.notEqual(await tile(page, "Entries"), "0");
        await keep(page, `cluster-overview-${node}`);
        assert.deepEqual(page.troubles, []);
      }
    });

    test("overview_paints_from_its_own_files_before_any_answer_of_the_api", async (t) => {
      // a context of its own has nothing in its cache
      const page = await browser.page(t, cluster.url(2), { isFresh: true });
      const asked = [];
      page.on("request", (request) => asked.push(new URL(request.url()).pathname));
      const held = [];
      await page.route("**/api/**", (route) => held.push(route));
      await page.goto(`${cluster.url(2)}/console/overview`);
      await page.locator(".shell h1").waitFor();
      console.log(`first paint, nothing cached, cluster under load: ${(await firstPaintMs(page)).toFixed(0)} ms`);
      await until(() => held.length > 0, "a question for the API");
      // whether an icon is asked for is the browser's affair
      const files = asked.filter((path) => !path.startsWith("/api/") && !path.endsWith(".svg")).sort();
      assert.deepEqual(files, FILES);
      await page.unrouteAll({ behavior: "ignoreErrors" });
      await Promise.all(held.map((route) => route.continue().catch(() => {})));
      await page.getByRole("table", { name: "Nodes", exact: true }).locator("tbody tr").nth(2).waitFor();
    });

    test("pages_of_a_node_make_no_error_and_ask_nobody_else", async (t) => {
      const page = await opened(t, 1, "overview");
      for (const name of PAGES) {
        await part(t, name, async () => {
          await follow(page, name);
          if (SERVED.has(name)) await settled(page);
          else await page.waitForFunction(() => document.querySelector("h1") && !document.querySelector(".state-loading"));
          await keep(page, `cluster-${name}`);
          assert.deepEqual(page.troubles, []);
        });
      }
    });

    test("heat_from_before_a_page_was_opened_is_there_and_after_a_reload_too", async (t) => {
      const heat = async () => (await fetch(`${cluster.url(1)}/api/v1/tree/heat?columns=256&step=10`)).json();
      const sum = (row) => (row ?? []).reduce((all, rate) => all + (rate ?? 0), 0);
      /** Steps that are over, of which all is known, and in which something was written. */
      const isKnown = (row) => row?.every((rate) => rate !== null);
      const over = ({ times_unix_ms, writes, step_ms }, at) => times_unix_ms.filter((time, index) => time + step_ms <= at && isKnown(writes[index]) && sum(writes[index]) > 0);
      const before = await until(async () => {
        const steps = over(await heat(), Date.now());
        return steps.length >= 2 && steps;
      }, "heat of two steps");
      const page = await browser.page(t, cluster.url(1), { isFresh: true });
      await page.goto(`${cluster.url(1)}/console/tree?tables=heat`);
      // a node that answered late comes with a later answer; the page itself saw nothing of these steps
      const shown = () => page.waitForFunction((times) => {
        const two = (number) => String(number).padStart(2, "0");
        const clock = (date) => [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
        const rows = [...document.querySelectorAll(".twin tbody tr")];
        return times.every((time) => {
          const row = rows.find((one) => one.querySelector("th").innerText === clock(new Date(time)));
          return /[1-9].*\/s/.test(row?.querySelector("td").innerText ?? "");
        });
      }, before);
      await shown();
      await page.reload();
      await shown();
      await keep(page, "cluster-heat");
      assert.deepEqual(page.troubles, []);
    });

    test("setting_changed_in_the_browser_is_in_force_on_all_nodes_and_moves_the_selector", async (t) => {
      const page = await opened(t, 0, "tuning?find=client_selector_policy");
      await page.getByRole("combobox", { name: "client_selector_policy" }).selectOption("fixed");
      await page.getByLabel("Reason, for the history").fill("to see the other path");
      const apply = page.getByRole("button", { name: "Apply it" });
      await apply.click();
      await until(async () => {
        if (await page.getByText("to see the other path").count() > 0) return true;
        // the coordinator was late
        if (await page.locator(".change-bar").getByRole("alert").count() > 0) await clickIfThere(apply);
        return false;
      }, "the change in the history");
      await page.getByText("in force on all 3 nodes").first().waitFor();
      await keep(page, "cluster-tuning-applied");
      // half of the searches goes to the server now, whatever it costs: none was decided by a fixed share before
      const selector = await opened(t, 2, "selector");
      await selector.waitForFunction(() => {
        const text = document.querySelector("#main").innerText;
        const figure = (name) => Number.parseFloat(new RegExp(`^${name}\\s+([\\d.,]+)`, "m").exec(text)?.[1].replaceAll(",", "") ?? "0");
        return figure("fixed share") > 10 * figure("estimate") && figure("fixed share") > 0;
      });
      await keep(selector, "cluster-selector-fixed");
      const back = page.getByRole("button", { name: "Take it back" });
      await until(async () => {
        if (await page.getByText("taken back by").count() > 0) return true;
        // asked again where the coordinator was late
        if (await back.count() > 0) await clickIfThere(back);
        else await clickIfThere(page.getByRole("button", { name: /^Revert revision/ }).first());
        return false;
      }, "the change taken back");
      assert.deepEqual([page.troubles, selector.troubles], [[], []]);
    });

    test("pair_moved_in_the_browser_is_served_by_the_other_node_under_load", async (t) => {
      const api = async (path) => (await fetch(`${cluster.url(2)}/api/v1/${path}`)).json();
      const ownerOf = async (pair) => (await api("regions?limit=65536")).regions.find((region) => region.pair === pair)?.node;
      // the one that holds most
      const { regions } = await until(async () => {
        const document = await api("regions?limit=65536");
        return document.missing.length === 0 && document.regions.every((region) => region.used_bytes !== null) && document;
      }, "what all regions hold");
      const { pair, node: from } = regions.reduce((most, one) => (one.used_bytes > most.used_bytes ? one : most));
      const to = (from + 1) % 3;
      const page = await opened(t, 0, `nodes?move=${pair}&to=${to}`);
      await page.getByLabel("Reason, for those who look at moves").fill("to see it move");
      const dialog = page.getByRole("dialog", { name: new RegExp(`^Move pair ${pair} from node \\d+ to node ${to}\\?$`) });
      const button = (name) => dialog.getByRole("button", { name });
      const asked = async () => (await api("moves")).moves?.find((move) => move.pair === pair && move.why.endsWith("to see it move"));
      // on a busy machine the coordinator may not answer in time; then it may be asked for all the same
      const ask = () => until(async () => {
        const move = await asked();
        if (move && [null, "moved"].includes(move.outcome)) return true;
        if (await dialog.count() === 0) {
          await page.getByRole("button", { name: "Show what it would do…" }).click();
          // refused: the coordinator was late, or the move was taken meanwhile
          await dialog.or(page.getByRole("form", { name: "Move a pair" }).getByRole("alert")).first().waitFor();
        } else if (await dialog.getByRole("alert").count() > 0) {
          await clickIfThere(button("Leave it"));
        } else {
          await clickIfThere(button("Move it")); // disabled once it is sent
        }
        return false;
      }, "a move that is asked for");
      let move = null;
      // a copy may fall behind the load there: the move goes back
      for (let tries = 0; move?.outcome !== "moved" && tries < MOVES_MAX; tries += 1) {
        await ask();
        move = await until(async () => {
          const one = await asked();
          return one?.outcome && one;
        }, "the move's end");
      }
      assert.equal(move.outcome, "moved", move.because);
      await until(async () => {
        if (await dialog.count() === 0) return true;
        await clickIfThere(button("Leave it")); // it is over, and whoever asked for it may not have heard of it
        return false;
      }, "the dialog's end");
      const row = page.getByRole("table", { name: "Moves that are over" }).getByRole("row").filter({ hasText: `pair ${pair}` });
      await row.getByText("moved").waitFor();
      await keep(page, "cluster-moves");
      await until(async () => (await ownerOf(pair)) === to, "the new owner");
      const told = await until(async () => {
        const events = (await api("events?kind=move")).events.filter(({ details }) => details.pair === pair && details.number === move.number);
        return events.length >= 3 && events;
      }, "the events of the move");
      assert.deepEqual(told.map((event) => event.details.what), ["moved", "handed", "begun"], "newest first");
      const times = told.map((event) => event.at_unix_ms);
      assert.ok(times[0] >= times[1] && times[1] >= times[2], times.join());
      assert.match(told[2].text, /to see it move/);
      assert.deepEqual(page.troubles, []);
    });

    test("node_killed_in_the_browser_is_followed_to_the_report", async (t) => {
      // where the entries are: other nodes' loss stops nothing
      const { nodes } = await (await fetch(`${cluster.url(0)}/api/v1/nodes`)).json();
      const { node } = nodes.reduce((most, one) => (one.entries > most.entries ? one : most));
      const page = await opened(t, (node + 1) % 3, `recovery?kind=kill&node=${node}`);
      await page.getByText(`Node ${node} owns`).first().waitFor();
      const dialog = page.getByRole("dialog");
      const runs = page.getByRole("button", { name: "Run this drill…" });
      const refused = page.getByText("The drill has not begun");
      // a node that is late where the drill is asked for, or was where it was shown, has it refused
      const ask = async () => {
        await runs.click();
        await dialog.getByRole("textbox").fill(`node-${node}`);
        await dialog.getByRole("button", { name: "Kill it" }).click();
      };
      await ask();
      await until(async () => {
        if (await page.evaluate(() => new URLSearchParams(location.search).has("run"))) return true;
        if (await refused.count() > 0) {
          await clickIfThere(page.getByRole("button", { name: "Leave it" }));
          await ask();
        }
        return false;
      }, "a drill that begins");
      await dialog.waitFor({ state: "detached" });
      await page.getByRole("heading", { name: `Drill: kill of node ${node}` }).waitFor();
      await page.locator("#drill-run .gantt-row").first().waitFor();
      await keep(page, "cluster-drill-running");
      await page.getByRole("heading", { name: "PASS" }).waitFor();
      await keep(page, "cluster-drill-report");
      // what happened is among the events of a survivor, and all is served again
      const events = await opened(t, (node + 2) % 3, "events");
      await events.getByText(`node-${node} has left`).first().waitFor();
      const overview = await opened(t, (node + 2) % 3, "overview");
      await overview.getByText("All 3 nodes serve").first().waitFor();
      assert.deepEqual([page.troubles, events.troubles, overview.troubles], [[], [], []]);
    });
  });
}
