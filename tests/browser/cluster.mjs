// A real cluster of three nodes as a child of the test, by the program at `CELL_BIN`: in a folder and on ports of its
// own, under load if the test wants it, and ended whatever happens.

import { spawn } from "node:child_process";
import { accessSync, constants, mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const PROGRAM = process.env.CELL_BIN;
const NODES = 3;
/** How long a cluster may take until it is up, and until it has ended, on a machine that does other things, too. */
const PATIENCE_MS = 120_000;
/** Above the blocks of `tests/src/ports.rs`, below the ports of outgoing connections. */
const PORTS = [31_000, 31_400, 31_800, 32_200];
/** Small regions and segments: the machine runs a browser as well. */
const SIZES = [
  "--node-region-bytes", "64MiB", "--slot-bytes", "1MiB", "--extent-region-bytes", "128MiB", "--populate-chunk-bytes", "4MiB",
  "--log-segment-bytes", "4MiB",
];
const LINES_KEPT = 60;

/** Why there can be no cluster here; null if there can. */
export const clusterObstacle = PROGRAM && isExecutable(PROGRAM) ? null : "CELL_BIN names no program that can be run: cargo build";

function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** A child whose end can be waited for; `said` has its last lines on stderr. Killed when this process exits. */
class Child {
  constructor(args, stdin = "ignore") {
    this.process = spawn(PROGRAM, args, { stdio: [stdin, "pipe", "pipe"] });
    this.said = [];
    this.end = new Promise((resolve) => {
      this.process.once("error", (error) => resolve(String(error)));
      this.process.once("exit", (code, signal) => resolve(signal ?? code));
    });
    createInterface({ input: this.process.stderr }).on("line", (line) => {
      this.said.push(line);
      if (this.said.length > LINES_KEPT) this.said.shift();
    });
    const kill = () => this.process.kill("SIGKILL");
    process.once("exit", kill);
    void this.end.then(() => process.off("exit", kill));
  }

  get hasEnded() {
    return this.process.exitCode !== null || this.process.signalCode !== null || this.process.pid === undefined;
  }

  /** Ends it as an operator does; one that goes on is killed. Gives how it ended. */
  async stop() {
    if (this.hasEnded) return this.end;
    this.process.kill("SIGTERM");
    const late = setTimeout(() => this.process.kill("SIGKILL"), PATIENCE_MS);
    return this.end.finally(() => clearTimeout(late));
  }
}

export class Cluster {
  /** Starts it, with further flags of `cell dev`, and waits until every node serves. */
  static async start(flags = []) {
    const cluster = new Cluster(mkdtempSync(join(tmpdir(), "cell-browser-cluster-")), await freePorts(), flags);
    try {
      await cluster.up();
    } catch (error) {
      await cluster.close();
      throw error;
    }
    return cluster;
  }

  constructor(folder, port, flags) {
    this.folder = folder;
    this.loads = [];
    for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => void this.close().finally(() => process.exit(1)));
    this.supervisor = new Child(["dev", "--json", "--nodes", String(NODES), "--allow-drills", "--port", String(port), "--dir", join(folder, "data"), ...SIZES, ...flags]);
  }

  /** Reads what the supervisor announces until all nodes are up; then `nodes` has `node`, `pid`, `server`, `http`. */
  async up() {
    const announced = new Promise((resolve) => {
      createInterface({ input: this.supervisor.process.stdout }).on("line", (line) => {
        const event = JSON.parse(line);
        if (event.event === "up") resolve(event);
      });
    });
    const late = new Promise((resolve) => setTimeout(resolve, PATIENCE_MS).unref());
    const first = await Promise.race([announced, this.supervisor.end, late]);
    if (!first?.nodes) throw new Error(`the cluster did not come up (${first ?? "in time"}):\n${this.supervisor.said.join("\n")}`);
    this.nodes = first.nodes;
    this.server = this.nodes.map((node) => node.server).join(",");
  }

  /** The address of a node's console and API. */
  url(node) {
    return `http://${this.nodes[node].http}`;
  }

  /** Puts entries, an array of key and value, and waits until all are acknowledged. */
  async load(entries) {
    const child = new Child(["load", "-", "--quiet", "--server", this.server], "pipe");
    this.loads.push(child);
    child.process.stdin.end(entries.map(([key, value]) => `${key}\t${value}\n`).join(""));
    const end = await child.end;
    if (end !== 0) throw new Error(`cell load ended with ${end}:\n${child.said.join("\n")}`);
  }

  /** Reads and writes until the cluster is closed, far more operations than a test lasts. */
  async drive() {
    const child = new Child([
      "bench", "ycsb", "--quiet", "--workload", "a", "--records", "2000", "--operations", "1000000000", "--threads", "2", "--value-bytes", "100", "--server", this.server,
    ]);
    this.loads.push(child);
    return child;
  }

  /** Ends load and cluster, and removes what they left. Gives how the supervisor ended: 0 if in order. */
  async close() {
    await Promise.all(this.loads.map((load) => load.stop()));
    const end = await this.supervisor.stop();
    rmSync(this.folder, { recursive: true, force: true });
    return end;
  }
}

/** The first of a block of ports that nobody listens on: nodes, their HTTP, the coordinator. */
async function freePorts() {
  for (const first of PORTS) {
    const used = [...Array(NODES).keys()].flatMap((node) => [first + node, first + 80 + node]).concat(first + 200);
    const free = await Promise.all(used.map(isFree));
    if (free.every(Boolean)) return first;
  }
  throw new Error(`all blocks of ports are taken: ${PORTS.join(", ")}`);
}

function isFree(port) {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(false));
    server.listen(port, "127.0.0.1", () => server.close(() => resolve(true)));
  });
}
