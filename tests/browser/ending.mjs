// How the process of a test file ends: with all that it has started, whoever ends it.

const undo = new Set();
const SIGNALS = { SIGHUP: 1, SIGINT: 2, SIGTERM: 15 };
const LOOK_EVERY_MS = 1000;

/** Has something done when this process exits, at once and without waiting. Gives what takes it back. */
export function atExit(what) {
  undo.add(what);
  return () => undo.delete(what);
}

process.on("exit", () => {
  for (const what of [...undo].reverse()) {
    try {
      what();
    } catch {
      // the others are to be done, too
    }
  }
});
for (const [signal, number] of Object.entries(SIGNALS)) process.once(signal, () => process.exit(128 + number));

// When the runner is gone, nobody reads what becomes of the tests.
const runner = process.ppid;
setInterval(() => { if (process.ppid !== runner) process.exit(1); }, LOOK_EVERY_MS).unref();
