// A mock of a node's HTTP server, for development and for the tests of states. Without dependencies.
// `node mock/main.mjs [PORT]`; POST /mock/scenario with a name in the body switches what it plays.

import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { fileURLToPath } from "node:url";
import * as documents from "./documents.mjs";
import { beginning, Drill, KINDS, preview } from "./drill.mjs";
import { Moves } from "./moves.mjs";
import { openapi } from "./openapi.mjs";
import * as selector from "./selector.mjs";
import { Tuning } from "./tuning.mjs";
import { World } from "./world.mjs";

export const SCENARIOS = ["normal", "empty", "loading", "missing", "silent", "unauthorised", "forbidden", "conflict", "unavailable", "no-drills", "read-only"];

const DIST = new URL("../dist/", import.meta.url);
const TYPES = { js: "text/javascript; charset=utf-8", css: "text/css; charset=utf-8", svg: "image/svg+xml", html: "text/html; charset=utf-8" };
const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";
const TOKENS = { "viewer-token": "viewer", "operator-token": "operator", "admin-token": "admin" };

const ROLES = ["reader", "writer", "viewer", "operator", "admin"];
/** What each role permits. */
const ROLES_OF = { reader: ["reader"], writer: ["reader", "writer"], viewer: ["viewer"], operator: ["viewer", "operator"], admin: ROLES };

/** What who does not read entries is not told. */
function leaveKeysOut(document) {
  if (document === null) return;
  for (const one of [document, ...(document.buckets ?? [])]) {
    delete one.low;
    delete one.high;
  }
  document.keys_left_out = true;
}

class Mock {
  constructor() {
    this.world = new World();
    this.world.tuning = new Tuning(this.world);
    this.moves = new Moves(this.world);
    this.operations = new Map();
    this.streams = new Set();
    this.requests = [];
    this.tokens = { ...TOKENS };
    /** Paths whose answers are spoilt: "text" is no JSON, "cut" ends in the middle, "stalled" never ends, "silent" never begins. */
    this.spoilt = new Map();
    /** Documents that are changed before they are sent, by path or by topic of the stream. */
    this.changed = new Map();
    /** Whether checks of the tree stand still half-way. */
    this.holdsChecks = false;
    /** Whether drills that are asked for wait for their begin; the one that does. */
    this.holdsDrills = false;
    this.beginning = null;
    this.lastStreamId = 0;
    this.server = createServer((request, response) => void this.handle(request, response));
    this.timer = setInterval(() => this.tick(), 1000);
    this.timer.unref();
  }

  get scenario() {
    return this.world.scenario;
  }

  set scenario(name) {
    if (!SCENARIOS.includes(name)) throw new Error(`no scenario ${name}`);
    this.world.scenario = name;
  }

  tick() {
    const now = Date.now();
    this.world.tick(now);
    if (this.scenario === "silent" || this.scenario === "loading") return;
    for (const stream of this.streams) this.push(stream, now);
  }

  push(stream, now) {
    for (const topic of stream.topics) {
      const document = this.topic(topic, now, stream);
      if (document) this.changed.get(topic)?.(document);
      if (document) stream.response.write(`event: ${topic}\n${topic === "events" ? `id: ${++this.lastStreamId}\n` : ""}data: ${JSON.stringify(document)}\n\n`);
    }
  }

  topic(topic, now, stream) {
    if (topic === "status") return documents.status(this.world, now);
    if (topic === "selector") return selector.pairs(this.world, now);
    if (topic === "recoveries") return documents.recoveries(this.world, now);
    if (topic === "tuning") return this.world.tuning.document(now);
    const fresh = this.world.events.filter((event) => event.at_unix_ms > (stream.since ?? 0));
    stream.since = Math.max(stream.since ?? 0, ...fresh.map((event) => event.at_unix_ms));
    return fresh.length > 0 ? documents.head(now, { events: fresh.slice(-50), first_id: fresh[0].id, last_id: fresh.at(-1).id, missing: [] }) : null;
  }

  /** Cuts all streams, as a node that is restarted does. */
  cutStreams() {
    for (const stream of this.streams) stream.response.destroy();
  }

  async handle(request, response) {
    const url = new URL(request.url, "http://localhost");
    const seen = { method: request.method, path: url.pathname, query: url.search, headers: request.headers, body: "" };
    this.requests.push(seen);
    if (this.requests.length > 5000) this.requests.shift();
    let body = "";
    for await (const piece of request) body += piece;
    seen.body = body;
    if (url.pathname === "/mock/scenario") {
      this.scenario = body.trim();
      return this.json(response, 200, { scenario: this.scenario });
    }
    if (url.pathname.startsWith("/api/")) return this.api(request, response, url, body);
    this.file(response, url.pathname);
  }

  file(response, path) {
    const name = path.startsWith("/console/") ? path.slice(9) : "";
    const isAsset = /^[a-z]+\.(js|css|svg)$/.test(name) && existsSync(new URL(name, DIST));
    const file = isAsset ? name : "index.html";
    const headers = { "content-type": TYPES[file.split(".").pop()], "content-security-policy": CSP, "cache-control": "no-cache" };
    response.writeHead(200, headers).end(readFileSync(new URL(file, DIST)));
  }

  json(response, code, document, headers = {}) {
    response.writeHead(code, { "content-type": "application/json", "cache-control": "no-store", ...headers }).end(JSON.stringify(document));
  }

  problem(response, code, name, detail, next, errors = []) {
    const body = { version: 1, type: "about:blank", title: name, status: code, detail, code: name, request_id: `4d-${this.requests.length}`, next, errors };
    response.writeHead(code, { "content-type": "application/problem+json" }).end(JSON.stringify(body));
  }

  role(request) {
    if (this.scenario !== "unauthorised") return "admin";
    return this.tokens[(request.headers.authorization ?? "").replace("Bearer ", "")] ?? null;
  }

  api(request, response, url, body) {
    const role = this.role(request);
    if (!role) return this.problem(response, 401, "unauthorised", "Tokens are configured on this node, and this request has none that it knows.", "Send a token with the role viewer or higher.");
    if (this.scenario === "unavailable") return this.problem(response, 503, "not_serving", "This node is starting: it waits for its lease.", "Try again in a second, or ask another node.");
    const path = url.pathname.replace(/^\/api\/(v1\/)?/, "");
    if (path === "stream" && this.spoilt.get(path) !== "silent") return this.stream(request, response, url);
    if ((this.scenario === "loading" || this.scenario === "silent") && path !== "openapi.json") return; // never answers
    if (this.spoilt.has(path)) return this.spoil(response, this.spoilt.get(path));
    const isWrite = request.method !== "GET";
    if (isWrite && this.scenario === "read-only") return this.problem(response, 403, "read_only", "This node takes no changes.", "Ask another node.");
    if (isWrite && (this.scenario === "forbidden" || role === "viewer")) return this.problem(response, 403, "forbidden", "This needs the role operator; your token has viewer.", "Ask whoever keeps the tokens for one with more rights.");
    if (isWrite) return this.write(request, response, url, path, body);
    const readsEntries = ROLES_OF[role].includes("reader");
    const isOfKeys = /^(kv|tree\/(heat|locate|meganodes\/[^/]+\/nodes))/.test(path) || url.searchParams.has("from") || url.searchParams.has("to");
    if (!readsEntries && isOfKeys) return this.problem(response, 403, "forbidden", `This needs the role reader; your token has ${role}.`, "Ask whoever keeps the tokens for one with more rights.");
    const document = this.read(path, url.searchParams, role);
    if (!readsEntries && /^tree\/(buckets|meganodes)/.test(path)) leaveKeysOut(document);
    if (document === null) return this.problem(response, 404, "not_found", "There is no such thing here.", "Look it up in the list again.");
    const headers = path === "tuning" ? { etag: `"${document.revision}"` } : {};
    this.changed.get(path)?.(document);
    this.json(response, 200, document, headers);
  }

  spoil(response, how) {
    if (how === "silent") return;
    response.writeHead(200, { "content-type": "application/json", ...(how === "cut" ? { "content-length": "5000" } : {}) });
    if (how === "text") return response.end("<html>a proxy's page</html>");
    response.write('{"version": 1, "pai');
    if (how === "cut") setTimeout(() => response.destroy(), 50);
  }

  read(path, query, role) {
    const { world } = this;
    const now = Date.now();
    const routes = {
      "cluster/status": () => documents.status(world, now), nodes: () => documents.nodes(world, now), regions: () => documents.regions(world, now),
      wal: () => documents.wal(world, now), recoveries: () => documents.recoveries(world, now), events: () => documents.events(world, now, query),
      series: () => documents.series(world, now, query), "tree/buckets": () => documents.buckets(world, now, query),
      "tree/heat": () => documents.heat(world, now, query),
      "tree/locate": () => documents.locate(world, now, query.get("key") ?? ""), "selector/pairs": () => selector.pairs(world, now),
      tuning: () => world.tuning.document(now), "tuning/history": () => documents.head(now, world.tuning.page(Number(query.get("limit") ?? 50), Number(query.get("before") ?? Infinity))),
      moves: () => documents.head(now, this.moves.document()), drains: () => documents.head(now, { drains: [] }), balance: () => documents.head(now, { balancer: 0, on: true, step: "rest", decision: "nothing is to be done: there is too little to be worth balancing", mean_bytes: 0, mean_load_share: 0, moves: { above: 0, below: 0, drain: 0, fresh: 0, full: 0, cancelled: 0 }, nodes: [], pairs: [], total: 0, truncated: false }), drills: () => this.drills(now), "drills/preview": () => documents.head(now, preview(world, query.get("kind"), Number(query.get("node")), Number(query.get("delay_ms") ?? 100))),
      kv: () => documents.kvPage(world, now, query), whoami: () => documents.head(now, { name: role, role, roles: ROLES_OF[role], tokens_required: this.scenario === "unauthorised" }),
      "openapi.json": () => openapi,
    };
    if (routes[path]) return routes[path]();
    const parts = path.split("/").map(decodeURIComponent);
    if (path.startsWith("tree/meganodes/")) return parts[4] === undefined ? documents.meganode(world, now, parts[2]) : documents.treeNode(world, now, parts[2], Number(parts[4]));
    if (path.startsWith("selector/pairs/")) return selector.series(world, now, parts[2], Number(parts[3]), Number(query.get("seconds") ?? 120));
    if (path.startsWith("kv/")) return documents.kvValue(world, now, parts[1]);
    if (path.startsWith("operations/")) return this.operations.get(parts[1])?.(now) ?? null;
    return null;
  }

  drills(now) {
    const runs = [...this.world.runs.map((run) => run.document(now)), ...(this.beginning ? [this.beginning.row] : [])].reverse();
    const isAllowed = this.scenario !== "no-drills";
    return documents.head(now, { allowed: isAllowed, why_not: isAllowed ? null : "The cluster was started without --allow-drills.", kinds: KINDS, runs });
  }

  write(request, response, url, path, body) {
    const { tuning } = this.world;
    let document;
    try {
      document = body ? JSON.parse(body) : {};
    } catch {
      return this.problem(response, 400, "bad_json", "The body is not JSON.", null);
    }
    if (path === "tuning" || path === "tuning:revert") return this.change(request, response, url, path, document, tuning);
    if (path === "moves" || path === "moves:cancel") return this.changeMove(request, response, url, path, document);
    if (path === "drills") return this.beginDrill(response, document);
    if (path === "tree:check") return this.beginCheck(response);
    if (/^drills\/[^/]+:halt$/.test(path)) return this.haltDrill(response, path.slice(7, -5));
    this.problem(response, 404, "not_found", "There is no such route.", null);
  }

  change(request, response, url, path, document, tuning) {
    const condition = request.headers["if-match"];
    if (!condition) return this.problem(response, 428, "precondition_required", "A change needs If-Match with the revision that you saw.", "Read /api/v1/tuning first.");
    if (this.scenario === "conflict") {
      this.scenario = "normal";
      tuning.apply({ split_fill_percent: "80" }, "another operator", "more room", null);
    }
    if (condition !== `"${tuning.revision}"`) return this.problem(response, 412, "stale_revision", `Settings changed meanwhile: they are at revision ${tuning.revision}.`, "Read them again, and decide anew.");
    const isDry = url.searchParams.get("dry_run") === "1";
    if (path === "tuning:revert") {
      const changes = tuning.revert(String(document.revision), isDry);
      if (!changes) return this.problem(response, 404, "not_found", "There is no such revision.", null);
      return this.json(response, 200, documents.head(Date.now(), { revision: tuning.revision, changes, dry_run: isDry, expires_unix_ms: null }));
    }
    const errors = tuning.errors(document);
    if (errors.length > 0) return this.problem(response, 422, "invalid", "The change was not made: some values cannot be taken.", "Correct them; nothing was changed.", errors);
    const ttl = Number(url.searchParams.get("ttl_seconds") ?? 0);
    const changes = isDry ? tuning.changesOf(document) : tuning.apply(document, "admin", url.searchParams.get("reason"), ttl);
    this.json(response, 200, documents.head(Date.now(), { revision: tuning.revision, changes, dry_run: isDry, expires_unix_ms: ttl ? Date.now() + ttl * 1000 : null }));
  }

  changeMove(request, response, url, path, document) {
    const query = url.searchParams;
    const seen = request.headers["if-match"]?.slice(1, -1);
    if (path === "moves" && !seen && query.get("dry_run") !== "1") return this.problem(response, 428, "precondition_required", "A move needs If-Match with the revision of its preview.", "ask with ?dry_run=1: the ETag of that answer is the revision");
    const { problem, row } = this.moves.change(path, document, { seen, reason: query.get("reason"), isDry: query.get("dry_run") === "1", who: "admin", now: Date.now() });
    if (problem) return this.problem(response, ...problem);
    this.json(response, 200, documents.head(Date.now(), { move: row, dry_run: query.get("dry_run") === "1" }), { etag: `"${row.revision}"` });
  }

  beginDrill(response, { kind, node, confirm, preview: seen, delay_ms: delayMs = 100 }) {
    const { world } = this;
    if (seen !== undefined && seen !== preview(world, kind, node, delayMs).revision) return this.problem(response, 412, "stale_preview", "No drill was started: its preview is not true any more.", "Look at the preview again, and decide anew.");
    if (this.scenario === "no-drills") return this.problem(response, 403, "drills_not_allowed", "The cluster was started without --allow-drills.", "Start it with the flag.");
    if (confirm !== `node-${node}`) return this.problem(response, 422, "not_confirmed", "The node's name was not typed.", `Type node-${node}.`);
    if (world.drill?.isUnderWay) return this.problem(response, 409, "drill_running", "A drill is under way.", "Wait for its end or halt it.");
    const id = `drill-${world.runs.length + 1}`;
    const begin = () => {
      this.beginning = null;
      const run = new Drill(world, id, kind, node, Date.now());
      world.drill = run;
      world.runs.push(run);
      this.operations.set(run.id, (now) => ({ ...documents.head(now), ...run.document(now) }));
      this.json(response, 202, { version: 1, operation: run.id, runner: run.survivor(0) }, { location: `/api/v1/drills/${run.id}` });
    };
    if (!this.holdsDrills) return begin();
    this.beginning = { row: beginning(id, kind, node, Date.now()), begin };
  }

  /** A check of the tree takes a second. */
  beginCheck(response) {
    const [id, begun, { world }] = [`check-0-${this.operations.size + 1}`, Date.now(), this];
    this.operations.set(id, (now) => documents.treeCheck(world, this.holdsChecks ? begun + 500 : now, id, begun));
    this.json(response, 202, { version: 1, operation: id, runner: 0 }, { location: `/api/v1/operations/${id}` });
  }

  haltDrill(response, id) {
    const run = this.world.runs.find((one) => one.id === id);
    if (!run) return this.problem(response, 404, "not_found", "There is no such drill.", null);
    Object.assign(run, { halted: true, isUnderWay: false, ended: Date.now() });
    this.json(response, 202, { version: 1, operation: id });
  }

  stream(request, response, url) {
    const topics = (url.searchParams.get("topics") ?? "").split(",").filter(Boolean);
    response.writeHead(200, { "content-type": "text/event-stream", "cache-control": "no-store" });
    response.write(`retry: 1000\nid: ${this.lastStreamId}\n\n`); // a first id without an event
    const stream = { response, topics, since: Number.isFinite(Number(request.headers["last-event-id"])) ? Date.now() - 60_000 : 0 };
    this.streams.add(stream);
    response.on("close", () => this.streams.delete(stream));
    if (this.scenario !== "loading" && this.scenario !== "silent") this.push(stream, Date.now());
  }
}

/** A mock that listens; port 0 takes a free one. */
export async function startMock(port = 0) {
  const mock = new Mock();
  await new Promise((resolve) => mock.server.listen(port, "127.0.0.1", resolve));
  mock.url = `http://127.0.0.1:${mock.server.address().port}`;
  mock.close = () => {
    clearInterval(mock.timer);
    mock.server.closeAllConnections();
    mock.server.close();
  };
  return mock;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const mock = await startMock(Number(process.argv[2] ?? 20800));
  console.log(`the mock listens on ${mock.url}; scenarios: ${SCENARIOS.join(", ")}`);
}
