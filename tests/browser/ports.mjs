// Ports for a cluster, by the rule of `tests/src/ports.rs`: whoever listens on the last port of a block has the block.

import { readFileSync } from "node:fs";
import { createServer } from "node:net";

const BLOCK = 300;
/** Not the first block of `tests/src/ports.rs`: Chromium opens no page at port 10,080. */
const LOWEST = 10_300;
const HIGHEST = 65_000;
const OUTGOING = "/proc/sys/net/ipv4/ip_local_port_range";

/** Takes a block for a cluster of so many nodes: its `first`, and a listener on its `last`, which holds it. */
export async function takePorts(nodes) {
  const outgoing = readFileSync(OUTGOING, "utf8").trim().split(/\s+/).map(Number);
  for (let first = LOWEST; first <= HIGHEST; first += BLOCK) {
    if (first <= outgoing[1] && first + BLOCK > outgoing[0]) continue;
    const last = await listen(first + BLOCK - 1);
    if (last === null) continue;
    const used = [...Array(nodes).keys()].flatMap((node) => [first + node, first + 80 + node]);
    const free = await Promise.all(used.map(isFree));
    if (free.every(Boolean)) return { first, last };
    last.close();
  }
  throw new Error("all blocks of test ports are taken");
}

/** A listener on a port; null if somebody else has it. */
function listen(port) {
  return new Promise((resolve) => {
    const server = createServer();
    server.once("error", () => resolve(null));
    server.listen(port, "127.0.0.1", () => resolve(server.unref()));
  });
}

async function isFree(port) {
  const server = await listen(port);
  if (server === null) return false;
  await new Promise((closed) => server.close(closed));
  return true;
}
