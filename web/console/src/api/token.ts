// The bearer token of this tab. It is kept in sessionStorage, so that it ends with the tab.

import { createStore } from "../state/store";
import { keep, kept } from "../state/storage";

const NAME = "cell.token";
/** An object each time: a token that is entered again is tried again, also if it is the same. */
const stored = createStore({ secret: kept("sessionStorage", NAME) });

/** Whether a token is asked for: the node has refused a request. */
export const tokenWanted = createStore(false);

export const token = {
  get: () => stored.get().secret,
  subscribe: stored.subscribe,
  set(secret: string | null) {
    keep("sessionStorage", NAME, secret || null);
    tokenWanted.set(false);
    stored.set({ secret });
  },
  refused: () => tokenWanted.set(true),
};
