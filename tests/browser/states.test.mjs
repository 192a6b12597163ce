// Every page in every state, on a mock of a node: what is shown, no error, no foreign request, no violation of WCAG.
// A page with its data is loaded by its own address. For other states a walk goes from page to page within the console.

import assert from "node:assert/strict";
import { after, before, describe } from "node:test";
import { Browser, follow, keep, NARROW, obstacle, PAGES, PARALLEL, part, says, settled, test, violations, violationsOfWidth } from "./browser.mjs";

/** What a page shows when its data is there. */
const FULL = {
  overview: "All 3 nodes serve", tree: "Key space", selector: "m (l_r − RTT)", nodes: "Pairs and regions", durability: "Logs by pair",
  recovery: "What it stops", tuning: "client_selector_exploration", events: "was split at", data: "amber-0000", api: "/api/v1/cluster/status",
};
/** What a page shows to a viewer, where that is less. */
const VIEWED = { ...FULL, data: "Keys and values are for the role reader" };
const FILL = "cell load words.tsv --key 1 --value 2 --server 127.0.0.1:7000";
/** What it shows on an empty store; pages that are not here show the same as ever. */
const EMPTY = {
  overview: FILL, tree: FILL, selector: "--threads 4 --server 127.0.0.1:7000", durability: FILL, data: FILL, recovery: "--node 1 --dir DIR",
};
/** Pages whose answers come from all nodes. */
const GATHERED = ["overview", "tree", "selector", "nodes", "durability", "events", "tuning"];
/** Pages that have figures of each second. */
const LIVE = ["overview", "tree", "selector", "nodes", "durability", "recovery"];
/** The page that is audited and pictured in states that look alike on all. */
const SAMPLE = "overview";

describe("states", { skip: obstacle ?? false, concurrency: PARALLEL }, () => {
  let browser;
  before(async () => { browser = await Browser.start(); });
  after(async () => { await browser?.close(); });

  const opened = (t, name, scenario, options = {}) => browser.onMock(t, `/console/${name}`, { scenario, ...options });

  async function sound(page, audit, name) {
    assert.deepEqual(await audit(page), [], `${name}: accessibility`);
    assert.deepEqual(page.troubles, [], `${name}: errors`);
  }

  /** Goes to each page in turn, and has it looked at. */
  async function walk(t, page, names, look) {
    for (const name of names) {
      await part(t, name, async () => {
        await follow(page, name);
        await look(name);
        assert.deepEqual(page.troubles, []);
      });
    }
  }

  /** What looks alike on all pages is audited and pictured on one of them. */
  async function sampled(page, name, state) {
    if (name !== SAMPLE) return;
    await keep(page, `${name}-${state}`);
    await sound(page, violations, name);
  }

  for (const name of PAGES) {
    test(`${name}_shows_its_data_in_light_in_dark_and_at_390_px`, async (t) => {
      const { page } = await opened(t, name, "normal");
      await says(page, FULL[name]);
      await settled(page);
      await keep(page, `${name}-light`);
      await sound(page, violations, `${name}, light`);
      await page.emulateMedia({ colorScheme: "dark" });
      await keep(page, `${name}-dark`);
      await sound(page, violations, `${name}, dark`);
      await page.emulateMedia({ colorScheme: "light" });
      await page.setViewportSize(NARROW);
      await says(page, FULL[name]);
      await fits(page);
      await keep(page, `${name}-narrow`);
      await sound(page, violationsOfWidth, `${name}, narrow`);
    });
  }

  test("pages_while_nothing_answers_say_loading", async (t) => {
    const { page } = await opened(t, SAMPLE, "loading");
    await walk(t, page, PAGES, async (name) => {
      await says(page, name === "api" ? FULL.api : "Loading");
      await sampled(page, name, "loading");
    });
  });

  test("pages_without_a_token_ask_for_one_and_go_on_with_it", async (t) => {
    const { page } = await opened(t, SAMPLE, "unauthorised");
    await walk(t, page, PAGES, async (name) => {
      await says(page, "This node wants a token");
      await sampled(page, name, "unauthorised");
      await page.getByLabel("Token").first().fill("viewer-token");
      await page.getByRole("button", { name: "Use it in this tab" }).first().click();
      await says(page, VIEWED[name]);
      await says(page, "live");
      assert.equal(await page.evaluate(() => sessionStorage.getItem("cell.token")), "viewer-token");
      await page.getByRole("button", { name: "Forget token" }).click();
      assert.equal(await page.evaluate(() => sessionStorage.getItem("cell.token")), null);
    });
  });

  test("pages_of_a_node_that_does_not_serve_say_what_and_next", async (t) => {
    const { page } = await opened(t, SAMPLE, "unavailable");
    await walk(t, page, PAGES, async (name) => {
      await says(page, "it waits for its lease");
      await says(page, "Try again in a second");
      await sampled(page, name, "unavailable");
    });
  });

  test("pages_of_an_empty_store_name_the_command_that_fills_it", async (t) => {
    const { page } = await opened(t, SAMPLE, "empty");
    await walk(t, page, Object.keys(EMPTY), async (name) => {
      await says(page, EMPTY[name]);
      await keep(page, `${name}-empty`);
      await sound(page, violations, name);
    });
  });

  test("pages_without_a_node_say_whose_answer_is_missing", async (t) => {
    const { page } = await opened(t, SAMPLE, "missing");
    await walk(t, page, GATHERED, async (name) => {
      await says(page, "Node 2 (127.0.0.1:7082) is missing: no answer within 200 ms");
      await sampled(page, name, "partial");
    });
  });

  test("pages_are_stale_when_the_stream_falls_silent", async (t) => {
    const { page, mock } = await opened(t, SAMPLE, "normal", { hasClock: true });
    await walk(t, page, LIVE, async (name) => {
      await says(page, FULL[name]);
      await settled(page);
      mock.scenario = "silent";
      try {
        await page.clock.fastForward(6000); // the page's clock alone: it waits for 5 s
        await page.locator(".is-stale").first().waitFor();
        await says(page, "The node that served this page is silent");
        await says(page, "Open it on node 1");
        await keep(page, `${name}-stale`);
        await sound(page, violations, name);
      } finally {
        mock.scenario = "normal";
      }
    });
  });

  test("recovery_without_permission_for_drills_says_how_to_get_it", async (t) => {
    const { page } = await opened(t, "recovery", "no-drills");
    await says(page, "Drills are off here");
    await says(page, "cell dev --nodes 3 --allow-drills");
    await sound(page, violations, "recovery");
  });

  test("tuning_of_a_viewer_is_refused_with_the_reason", async (t) => {
    const { page } = await opened(t, "tuning?find=client_selector_exploration", "forbidden");
    await page.getByRole("textbox", { name: "client_selector_exploration" }).fill("0.05");
    await page.getByRole("button", { name: "Apply it" }).click();
    await says(page, "This needs the role operator");
    await sound(page, violations, "tuning");
  });
});

/** Waits until the page does not scroll sideways; fails with the elements that end right of the screen. */
async function fits(page) {
  const isFitting = () => document.documentElement.scrollWidth <= innerWidth;
  await page.waitForFunction(isFitting, undefined, { timeout: 20_000 }).catch(() => {});
  assert.deepEqual(await page.evaluate(widerThanTheScreen), []);
}

/** Runs in the page. */
function widerThanTheScreen() {
  if (document.documentElement.scrollWidth <= innerWidth) return [];
  const isWide = (element) => element.getBoundingClientRect().right > innerWidth + 0.5;
  const all = [...document.body.querySelectorAll("*")].filter(isWide);
  return all.slice(0, 10).map((element) => `${element.localName}.${element.className} to ${Math.round(element.getBoundingClientRect().right)} px`);
}
