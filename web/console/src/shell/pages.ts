// The pages: address, name, and the letter that goes there after `g`.

import type { ComponentType } from "preact";
import { Api } from "../pages/api/page";
import { Data } from "../pages/data/page";
import { Durability } from "../pages/durability/page";
import { Events } from "../pages/events/page";
import { Nodes } from "../pages/nodes/page";
import { Overview } from "../pages/overview/page";
import { Recovery } from "../pages/recovery/page";
import { Selector } from "../pages/selector/page";
import { Tree } from "../pages/tree/page";
import { Tuning } from "../pages/tuning/page";

export interface Page { path: string; name: string; letter: string; view: ComponentType }

export const PAGES: Page[] = [
  { path: "/console/overview", name: "Overview", letter: "o", view: Overview },
  { path: "/console/tree", name: "Tree", letter: "t", view: Tree },
  { path: "/console/selector", name: "Selector", letter: "s", view: Selector },
  { path: "/console/nodes", name: "Nodes & regions", letter: "n", view: Nodes },
  { path: "/console/durability", name: "Durability", letter: "l", view: Durability },
  { path: "/console/recovery", name: "Recovery & drills", letter: "r", view: Recovery },
  { path: "/console/tuning", name: "Tuning", letter: "u", view: Tuning },
  { path: "/console/events", name: "Events", letter: "e", view: Events },
  { path: "/console/data", name: "Data", letter: "d", view: Data },
  { path: "/console/api", name: "API", letter: "a", view: Api },
];

export function pageOf(path: string): Page | null {
  if (path === "/" || path === "/console" || path === "/console/") return PAGES[0]!;
  return PAGES.find((page) => path === page.path || path === `${page.path}/`) ?? null;
}
