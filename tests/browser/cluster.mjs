// A real cluster of three nodes as children of the test: in a folder and on ports of its own, under load if the test
// wants it, and ended whatever happens.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Child, childObstacle } from "./child.mjs";
import { atExit } from "./ending.mjs";
import { takePorts } from "./ports.mjs";

const NODES = 3;
/** How long a cluster may take until it is up, on a machine that does other things, too. */
const PATIENCE_MS = 120_000;
/** Small regions and segments: the machine runs a browser as well. */
const SIZES = [
  "--node-region-bytes", "64MiB", "--slot-bytes", "1MiB", "--extent-region-bytes", "128MiB", "--populate-chunk-bytes", "4MiB",
  "--log-segment-bytes", "4MiB",
];

/** Why there can be no cluster here; null if there can. */
export const clusterObstacle = childObstacle;

export class Cluster {
  /** Starts it on ports of its own, with further flags of `cell dev`, and waits until every node serves. */
  static async start(flags = []) {
    const cluster = new Cluster(await takePorts(NODES), flags);
    try {
      await cluster.up();
    } catch (error) {
      await cluster.close();
      throw error;
    }
    return cluster;
  }

  constructor(ports, flags) {
    this.folder = mkdtempSync(join(tmpdir(), "cell-browser-cluster-"));
    this.ports = ports;
    this.cancelRemoval = atExit(() => this.removeFolder());
    this.loads = [];
    const args = ["dev", "--json", "--nodes", String(NODES), "--allow-drills", "--port", String(ports.first), "--dir", join(this.folder, "data")];
    this.supervisor = new Child([...args, ...SIZES, ...flags]);
  }

  /** Reads what the supervisor announces until all nodes are up; then `nodes` has `node`, `pid`, `server`, `http`. */
  async up() {
    const announced = new Promise((resolve) => {
      this.supervisor.onLine((line) => {
        const event = JSON.parse(line);
        if (event.event === "up") resolve(event);
        // a process that took the place of another one
        if (event.event === "serving" && this.nodes) this.nodes[event.node].pid = event.pid;
      });
    });
    let timer;
    const late = new Promise((resolve) => { timer = setTimeout(resolve, PATIENCE_MS); });
    const first = await Promise.race([announced, this.supervisor.end, late]).finally(() => clearTimeout(timer));
    if (!first?.nodes) throw new Error(`the cluster did not come up (${first ?? "in time"}):\n${this.supervisor.said.join("\n")}`);
    this.nodes = first.nodes;
    this.server = this.nodes.map((node) => node.server).join(",");
  }

  /** The address of a node's console and API. */
  url(node) {
    return `http://${this.nodes[node].http}`;
  }

  /** Sends a signal to the process that is a node now. */
  kill(node, signal) {
    process.kill(this.nodes[node].pid, signal);
  }

  /** Puts entries, an array of key and value, and waits until all are acknowledged. */
  async load(entries) {
    const child = new Child(["load", "-", "--quiet", "--server", this.server], { stdin: "pipe" });
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
    this.cancelRemoval();
    this.removeFolder();
    this.ports.last.close();
    return end;
  }

  removeFolder() {
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
