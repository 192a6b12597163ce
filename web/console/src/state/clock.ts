// The time of this browser, each second. Ages are measured by it alone: from when something was received.

import { createStore, useStore } from "./store";

const clock = createStore(Date.now());

setInterval(() => clock.set(Date.now()), 1000);

export const useNow = (): number => useStore(clock);
