// Whether this tab can be seen. One that cannot asks for nothing.

import { createStore } from "./store";

export const visible = createStore(!document.hidden);

document.addEventListener("visibilitychange", () => visible.set(!document.hidden));
