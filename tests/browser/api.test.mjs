// How the console asks: the grammar of its stream, where that goes on after a break, and what becomes of a token. Its
// sources, without a browser.

import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

const folder = fileURLToPath(new URL("../../web/console", import.meta.url));
const skip = existsSync(`${folder}/node_modules`) ? false : "npm ci in web/console first";

/** What these modules have, all of one copy; each time another one. */
async function load(...modules) {
  const { build } = createRequire(`${folder}/package.json`)("esbuild");
  const contents = modules.map((module) => `export * from "./src/api/${module}";`).join("\n");
  const stdin = { contents, resolveDir: folder, loader: "ts" };
  const built = await build({ stdin, bundle: true, write: false, format: "esm", target: ["es2022"], logLevel: "warning" });
  return import(`data:text/javascript;base64,${Buffer.from(built.outputFiles[0].text).toString("base64")}#${Math.random()}`);
}

/** Answers requests in turn, and notes their headers. */
function answering(t, ...answers) {
  const asked = [];
  t.mock.method(globalThis, "fetch", async (_path, { headers }) => {
    asked.push(headers);
    const answer = answers.shift();
    return answer ? answer() : new Promise(() => {});
  });
  return asked;
}

const streamOf = (text) => () => new Response(text, { headers: { "content-type": "text/event-stream" } });

const refusal = () => new Response("{}", { status: 401, headers: { "content-type": "application/problem+json" } });

/** Waits for what comes by itself, turn by turn. */
async function until(what, isSo) {
  for (let turn = 0; turn < 10_000; turn += 1) {
    if (isSo()) return;
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.fail(`not ${what}`);
}

test("an_id_is_passed_on_once_and_goes_with_the_events_after_it", { skip }, async () => {
  const { EventLines } = await load("stream");
  const seen = [];
  const lines = new EventLines(({ topic, id, data }) => seen.push([topic, id, data]));
  lines.push(": begins\n\n");
  assert.deepEqual(seen, [], "no id has come");
  lines.push("id: 7\n\n: still there\n\n: and now\n\n");
  assert.deepEqual(seen.splice(0), [["", "7", null]]);
  lines.push("event: status\ndata: 1\n\n: still there\n\n");
  assert.deepEqual(seen.splice(0), [["status", "7", 1]]);
  lines.push("event: status\nid: 8\ndata: 2\n\n: still there\n\n");
  assert.deepEqual(seen.splice(0), [["status", "8", 2]]);
  lines.push("id: 9\n\n: still there\n\n");
  assert.deepEqual(seen.splice(0), [["", "9", null]]);
  lines.push("id: 10\ndata: no JSON\n\n: still there\n\n");
  assert.deepEqual(seen.splice(0), [["", "10", null]], "an event that is left out is behind as well");
});

test("a_stream_that_breaks_right_after_it_began_goes_on_from_there", { skip }, async (t) => {
  const { Stream } = await load("stream");
  // It is tried again at once, and not given up for silence.
  const later = globalThis.setTimeout;
  t.mock.method(globalThis, "setTimeout", (call, ms) => later(call, ms < 15_000 ? 0 : ms).unref());
  const asked = answering(t, streamOf("id: 41\n\n"), streamOf("id: 42\nevent: status\ndata: {}\n\n"));
  const stream = new Stream({ onEvent() {}, onSign() {}, onState() {} });
  t.after(() => stream.stop());
  stream.setTopics(["events"]);
  for (const [round, id] of [undefined, "41", "42"].entries()) {
    await until(`asked for time ${round + 1}`, () => asked.length === round + 1);
    assert.equal(asked[round]["last-event-id"], id);
  }
});

test("a_late_refusal_of_an_older_token_asks_for_no_other", { skip }, async (t) => {
  const { ask, token, tokenWanted } = await load("client", "token");
  for (const [entered, wanted] of [["newer", false], ["older", true]]) {
    token.set("older");
    let refuse;
    const refused = new Promise((resolve) => { refuse = () => resolve(refusal()); });
    const asked = answering(t, () => refused);
    const answer = ask("status");
    await until("asked", () => asked.length === 1);
    assert.equal(asked[0].authorization, "Bearer older");
    token.set(entered);
    refuse();
    await assert.rejects(answer, (problem) => problem.isUnauthorised);
    assert.equal(tokenWanted.get(), wanted, `with ${entered} by now`);
    t.mock.restoreAll();
  }
});
