// What the console of a real node shows while others are away: the coordinator, the node's peers, the node itself. Leases
// are long, so that nobody is taken over meanwhile, however busy the machine is.

import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { Browser, follow, keep, obstacle, says, settled, test, until } from "./browser.mjs";
import { Cluster, clusterObstacle } from "./cluster.mjs";

const lacking = obstacle ?? clusterObstacle;
const LEASE = ["--lease-ms", "60000"];
const ENTRIES = Array.from({ length: 600 }, (_, index) => [`word-${String(index).padStart(5, "0")}`, `value of ${index}`]);
/** Pages with what each node reports, and where nothing else is made of it. */
const OF_ALL_NODES = ["overview", "tree", "nodes", "durability", "events", "tuning"];

if (lacking) {
  test("console_while_others_are_away", () => console.log(`SKIPPED: the console while others are away: ${lacking}`));
} else {
  describe("away", () => {
    let cluster;
    let browser;
    before(async () => {
      cluster = await Cluster.start(LEASE);
      await cluster.load(ENTRIES);
      browser = await Browser.start();
    });
    after(async () => {
      await browser?.close();
      assert.equal(await cluster?.close(), 0, "the cluster ends in order");
    });

    async function opened(t, node, name) {
      const page = await browser.page(t, cluster.url(node));
      await page.goto(`${cluster.url(node)}/console/${name}`);
      await isLive(page);
      await page.evaluate(() => { globalThis.isSame = true; });
      return page;
    }

    const nodesOf = async (node) => (await fetch(`${cluster.url(node)}/api/v1/nodes`)).json();
    const isLive = (page) => page.locator(".live:not(.live-off)").first().waitFor();
    const isGone = (page, words) => page.getByText(words).first().waitFor({ state: "detached" });

    /** Nobody has loaded the page anew, and it did nothing wrong. */
    async function sound(page) {
      assert.equal(await page.evaluate(() => globalThis.isSame), true, "the page was not loaded anew");
      assert.deepEqual(page.troubles, []);
    }

    test("coordinator_that_stands_still_is_said_and_the_console_goes_on", async (t) => {
      const page = await opened(t, 0, "overview");
      await page.getByText("All 3 nodes serve").first().waitFor();
      t.after(() => cluster.supervisor.process.kill("SIGCONT"));
      cluster.supervisor.process.kill("SIGSTOP");
      await says(page, "The coordinator does not answer");
      await says(page, "not reachable");
      await keep(page, "away-coordinator");
      // entries are read, settings are shown, the stream brings news
      await follow(page, "data");
      await says(page, "word-00000");
      await follow(page, "tuning");
      await page.getByRole("combobox", { name: "client_selector_policy" }).waitFor();
      await isLive(page);
      cluster.supervisor.process.kill("SIGCONT");
      await follow(page, "overview");
      await page.getByText("All 3 nodes serve").first().waitFor();
      await sound(page);
    });

    test("peers_that_stand_still_are_named_on_each_page_that_lacks_their_answers", async (t) => {
      const page = await opened(t, 0, "overview");
      const peers = cluster.nodes.slice(1);
      const all = (signal) => peers.forEach(({ node }) => cluster.kill(node, signal));
      t.after(() => all("SIGCONT"));
      for (const name of OF_ALL_NODES) {
        all("SIGSTOP");
        await follow(page, name);
        for (const { node, http } of peers) await says(page, `Node ${node} (${http}) is missing: no answer within 200 ms.`);
        await says(page, "The rest is shown.");
        await keep(page, `away-peers-${name}`);
        await isLive(page);
        all("SIGCONT"); // long before their leases end
        await until(async () => (await nodesOf(0)).missing.length === 0, "the peers answer again");
      }
      await isGone(page, "The rest is shown.");
      await sound(page);
    });

    test("node_that_is_killed_and_started_again_is_followed_by_its_page", async (t) => {
      const page = await opened(t, 1, "events");
      const joined = page.getByText("node-1 joined");
      await settled(page);
      await page.locator(".topbar-status").waitFor(); // the stream has said something after its first id
      const before = await joined.count();
      const again = page.waitForRequest((request) => new URL(request.url()).pathname === "/api/v1/stream");
      cluster.kill(1, "SIGKILL");
      // it says how far it has the events of each node
      assert.match((await again).headers()["last-event-id"] ?? "", /^0:\d+\.\d+,1:/);
      await page.waitForFunction(() => document.querySelector(".live-off") === null);
      // what the others saw while nobody answered here is among the events now
      await joined.nth(before).waitFor();
      await keep(page, "away-restarted");
      await follow(page, "overview");
      const rows = page.getByRole("table", { name: "Nodes", exact: true }).locator("tbody tr");
      await rows.nth(2).waitFor();
      await isLive(page);
      await sound(page);
    });
  });
}
