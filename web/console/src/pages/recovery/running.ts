// Whether a drill still runs, by its state.

import type { DrillRun } from "../../api/types";

const OVER = new Set(["passed", "failed", "inconclusive", "halted"]);

export const isRunning = (run: DrillRun): boolean => !OVER.has(run.state);
