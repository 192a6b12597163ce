// Histories from the node's rings, by name.

import type { SeriesDocument } from "../api/types";
import { useResource, type Resource } from "./resource";

export interface Histories extends Resource<SeriesDocument> {
  times: number[];
  /** Empty if the node has no such series. */
  values(name: string): (number | null)[];
}

const NONE: (number | null)[] = [];

export function useSeries(names: string[], seconds: number, node: number | "all" = "all", everyMs = 2000): Histories {
  // the nodes keep single seconds for ten minutes; six hours by ten seconds would be too many points
  const step = seconds > 3600 ? 60 : seconds > 600 ? 10 : 1;
  const path = names.length === 0 ? null : `series?names=${names.join(",")}&seconds=${seconds}&step=${step}&node=${node}`;
  const resource = useResource<SeriesDocument>(path, everyMs);
  const { data } = resource;
  return {
    ...resource,
    times: data?.times_unix_ms ?? [],
    values: (name) => data?.series.find((one) => one.name === name)?.values ?? NONE,
  };
}
