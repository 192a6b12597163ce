// The name of a client at a server in addresses of the console.

import type { SelectorPair } from "../../api/types";

export const pairName = (pair: SelectorPair): string => `${pair.client}/${pair.node}`;
