// The program at `CELL_BIN` as a child of the test. The kernel kills it when the test's process ends, however that ends.

import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { createInterface } from "node:readline";
import { atExit } from "./ending.mjs";

const PROGRAM = process.env.CELL_BIN;
/** How long a child may take to end in order, on a machine that does other things, too. */
const PATIENCE_MS = 120_000;
const LINES_KEPT = 60;

/** Why no child can be started here; null if one can. */
export const childObstacle = PROGRAM && isExecutable(PROGRAM) ? null : "CELL_BIN names no program that can be run: cargo build";

function isExecutable(path) {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** A child whose end can be waited for; `said` has its last lines on stderr. */
export class Child {
  constructor(args, { stdin = "ignore" } = {}) {
    this.process = spawn("setpriv", ["--pdeathsig", "KILL", PROGRAM, ...args], { stdio: [stdin, "pipe", "pipe"] });
    this.said = [];
    this.end = new Promise((resolve) => {
      this.process.once("error", (error) => resolve(String(error)));
      // not before all is read that it has said
      this.process.once("close", (code, signal) => resolve(signal ?? code));
    });
    createInterface({ input: this.process.stderr }).on("line", (line) => {
      this.said.push(line);
      if (this.said.length > LINES_KEPT) this.said.shift();
    });
    const cancelKill = atExit(() => this.process.kill("SIGKILL"));
    void this.end.then(cancelKill);
  }

  get hasEnded() {
    return this.process.exitCode !== null || this.process.signalCode !== null || this.process.pid === undefined;
  }

  /** Has each line that it prints read. */
  onLine(read) {
    createInterface({ input: this.process.stdout }).on("line", read);
  }

  /** Ends it as an operator does; one that goes on is killed. Gives how it ended. */
  async stop() {
    if (this.hasEnded) return this.end;
    this.process.kill("SIGTERM");
    const late = setTimeout(() => this.process.kill("SIGKILL"), PATIENCE_MS);
    return this.end.finally(() => clearTimeout(late));
  }
}
