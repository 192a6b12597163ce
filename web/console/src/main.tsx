// The console's entry.

import { render } from "preact";
import { Shell } from "./shell/shell";
import { followLinks } from "./state/url";

followLinks();
const app = document.getElementById("app");
if (app) {
  app.replaceChildren();
  render(<Shell />, app);
}
