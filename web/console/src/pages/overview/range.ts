// How far back the overview looks. The nodes keep a second's figures for ten minutes, those of ten and of sixty seconds for
// six hours.

import { setQuery, useParam } from "../../state/url";

export interface Range { name: string; short: string; title: string; seconds: number; everyMs: number; window: string }

const SECOND = "one point a second, all nodes";
const TEN = "one point each ten seconds, all nodes";
const MINUTE = "one point a minute, all nodes";

export const RANGES: Range[] = [
  { name: "5m", short: "5 min", title: "Last five minutes", seconds: 300, everyMs: 2000, window: SECOND },
  { name: "1h", short: "1 h", title: "Last hour", seconds: 3600, everyMs: 10_000, window: TEN },
  { name: "6h", short: "6 h", title: "Last six hours", seconds: 21_600, everyMs: 30_000, window: MINUTE },
];

export function useRange(): Range {
  const name = useParam("range");
  return RANGES.find((range) => range.name === name) ?? RANGES[0]!;
}

export const chooseRange = (name: string): void => setQuery({ range: name === RANGES[0]!.name ? null : name });
