// One Chromium for all tests of a file. Each test has a page of its own in it, on a mock of its own.

import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import * as nodeTest from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";
import { startMock } from "../../web/console/mock/main.mjs";
import "./ending.mjs";

/** Chromium without the window that nobody looks at takes a third less of a processor. */
const PROGRAMS = ["/usr/bin/chromium-headless-shell", "/usr/bin/chromium"];
const EXECUTABLE = process.env.CHROMIUM ?? PROGRAMS.find((path) => existsSync(path)) ?? PROGRAMS[0];
const ARTEFACTS = process.env.CELL_BROWSER_ARTEFACTS;
const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"];
/** How long a page may take to show what it must, on a machine that does other things, too. */
const PATIENCE_MS = 120_000;
const LOOK_EVERY_MS = 50;
/** A button that cannot be clicked by then may be gone. Where it is not, the machine is slow: it has twice as long. */
const GONE_MS = 2_000;
const WIDE = { width: 1280, height: 900 };
export const NARROW = { width: 390, height: 844 };
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"];
/** Rules whose verdict depends on how wide the page is. */
const RULES_OF_WIDTH = ["scrollable-region-focusable", "meta-viewport", "label", "link-name", "button-name"];

export const PAGES = ["overview", "tree", "selector", "nodes", "durability", "recovery", "tuning", "events", "data", "api"];

/** Tests of a file that run side by side: one draws while the other one waits. */
export const PARALLEL = 2;

/** Why the tests cannot run here; null if they can. */
export const obstacle = existsSync(EXECUTABLE) ? null : `there is no ${EXECUTABLE}: apt-get install chromium-headless-shell, or set CHROMIUM`;

/** The pages of each test. */
const pagesOf = new WeakMap();

/** A test; what its pages show is kept if it fails. */
export function test(name, body) {
  nodeTest.test(name, (t) => pictured(t, name, () => body(t)));
}

/** A part of a test, likewise. */
export const part = (t, name, body) => t.test(name, () => pictured(t, `${t.name}-${name}`, body));

async function pictured(t, name, body) {
  try {
    await body();
  } catch (error) {
    for (const page of pagesOf.get(t) ?? []) await keep(page, `failed-${name}`).catch(() => {});
    throw error;
  }
}

/** Waits until it gives something, and gives that. */
export async function until(look, what) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > end) assert.fail(`it did not come in ${PATIENCE_MS / 1000} s: ${what}`);
    await sleep(LOOK_EVERY_MS);
  }
}

/**
 * Clicks what may go meanwhile, or be disabled, because an earlier click has been carried out: who waits for that looks
 * again. What stays there is clicked.
 */
export async function clickIfThere(button) {
  const isThere = () => button.evaluateAll((all) => all.some((one) => !one.disabled));
  for (let timeout = GONE_MS; await isThere(); timeout *= 2) {
    try {
      await button.click({ timeout });
      return;
    } catch (error) {
      if (error.name !== "TimeoutError" || timeout > PATIENCE_MS) throw error;
    }
  }
}

export class Browser {
  static async start() {
    const browser = new Browser();
    browser.chromium = await chromium.launch({
      executablePath: EXECUTABLE, headless: true, args: ARGUMENTS, timeout: PATIENCE_MS,
      handleSIGHUP: false, handleSIGINT: false, handleSIGTERM: false, // the process exits, and Chromium with it
    });
    browser.shared = await browser.context();
    return browser;
  }

  async context() {
    const context = await this.chromium.newContext({ viewport: WIDE, reducedMotion: "reduce" });
    context.setDefaultTimeout(PATIENCE_MS);
    return context;
  }

  /** A page on a mock that nobody else uses: `{ page, mock }`. Both end with the test. */
  async onMock(t, path, { scenario = "normal", ...options } = {}) {
    const mock = await startMock();
    mock.scenario = scenario;
    const page = await this.page(t, mock.url, options).finally(() => t.after(() => mock.close()));
    await page.goto(`${mock.url}${path}`);
    return { page, mock };
  }

  /**
   * A page that knows the one origin it may ask; it ends with the test. `troubles` holds what it did wrong. Pages share
   * processes and caches, but not what they store, which belongs to the origin. A clock belongs to a context: `hasClock`
   * makes one for the page alone, as does `isFresh`, whose cache is empty.
   */
  async page(t, origin, { hasClock = false, isFresh = false } = {}) {
    const isAlone = hasClock || isFresh;
    const context = isAlone ? await this.context() : this.shared;
    if (hasClock) await context.clock.install();
    const page = await context.newPage();
    pagesOf.set(t, [...(pagesOf.get(t) ?? []), page]);
    t.after(() => (isAlone ? context.close() : page.close()));
    page.troubles = [];
    watch(page, origin);
    return page;
  }

  async close() {
    await this.chromium.close();
  }
}

function watch(page, origin) {
  page.on("pageerror", (error) => page.troubles.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // the browser itself reports responses like 401 and connections that ended: states that tests bring about
    const isNetwork = message.text().startsWith("Failed to load resource");
    if (message.type() === "error" && !isNetwork) page.troubles.push(`console: ${message.text()}`);
  });
  page.on("request", (request) => {
    const url = request.url();
    if (!url.startsWith(`${origin}/`) && !url.startsWith("blob:")) page.troubles.push(`foreign request: ${url}`);
  });
}

/** Waits until the page says it where it can be seen. */
export const says = (page, text) => page.getByText(text, { exact: false }).filter({ visible: true }).first().waitFor();

/** Goes to a page as its link does, without loading the console anew. */
export async function follow(page, name) {
  const link = page.locator(`.shell > .nav a[href="/console/${name}"]`);
  await link.click();
  await page.locator(`.shell > .nav a[href="/console/${name}"][aria-current="page"]`).waitFor();
}

/** Waits until all of the page is there: nothing is loading, and nothing went wrong. */
export async function settled(page) {
  await page.locator("h1").waitFor();
  await page.waitForFunction(() => document.querySelector(".state-loading, .notice-critical") === null);
}

/** Violations of WCAG A and AA below a selector, one line each. */
export const violations = (page, selector = "html") => audit(page, selector, { runOnly: AXE_TAGS });

/** The rules alone that depend on the width, on a page that was audited whole at another one. */
export const violationsOfWidth = (page) => audit(page, "html", { runOnly: { type: "rule", values: RULES_OF_WIDTH } });

async function audit(page, selector, options) {
  // through the protocol, because the page's policy lets no other script in
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(AXE);
  const found = await page.evaluate(async ([below, rules]) => {
    const { violations: all } = await globalThis.axe.run(below, { ...rules, resultTypes: ["violations"] });
    return all.map(({ id, help, nodes }) => ({ id, help, nodes: nodes.slice(0, 3).map((node) => node.html.slice(0, 160)) }));
  }, [selector, options]);
  return found.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.join(" | ")}`);
}

/** Keeps a picture where `CELL_BROWSER_ARTEFACTS` says. */
export async function keep(page, name) {
  if (!ARTEFACTS) return;
  mkdirSync(ARTEFACTS, { recursive: true });
  await page.screenshot({ path: join(ARTEFACTS, `${name}.png`), fullPage: true });
}
