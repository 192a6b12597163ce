// The bearer token of this tab. It is kept in sessionStorage, so that it ends with the tab.

import { createStore } from "../state/store";

const NAME = "cell.token";
const stored = createStore<string | null>(sessionStorage.getItem(NAME));

/** Whether a token is asked for: the node has refused a request. */
export const tokenWanted = createStore(false);

export const token = {
  get: () => stored.get(),
  subscribe: stored.subscribe,
  set(secret: string | null) {
    if (secret) sessionStorage.setItem(NAME, secret);
    else sessionStorage.removeItem(NAME);
    tokenWanted.set(false);
    stored.set(secret);
  },
  refused: () => tokenWanted.set(true),
};
