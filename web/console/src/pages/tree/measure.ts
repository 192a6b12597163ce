// What the width of a meganode on the key axis stands for: the address holds it.

import { useParam } from "../../state/url";

export type Measure = "entries" | "bytes";

export const useMeasure = (): Measure => (useParam("width") === "bytes" ? "bytes" : "entries");
