// Recorded seconds of one client and one server, as the two sides of the inequality.

import type { SelectorSeries } from "../../api/types";

export interface Sample {
  at: number;
  /** `l_s - RTT`, ns: what a search waits at the server. */
  server: number;
  /** `l_r - RTT`, ns: what a read waits; times m it is the other side. */
  read: number;
  m: number; share: number | null; searches: number;
}

export function samplesOf(series: SelectorSeries | null): Sample[] {
  if (!series) return [];
  const { l_s_ns = [], l_r_ns = [], rtt_ns = [], m = [], one_sided_share = [], searches_per_second = [] } = series.series;
  return series.times_unix_ms.flatMap((at, index) => {
    const [l_s, l_r, rtt] = [l_s_ns[index], l_r_ns[index], rtt_ns[index]];
    if (typeof l_s !== "number" || typeof l_r !== "number" || typeof rtt !== "number") return [];
    const reads = m[index] ?? 0;
    return [{ at, server: l_s - rtt, read: l_r - rtt, m: reads, share: one_sided_share[index] ?? null, searches: searches_per_second[index] ?? 0 }];
  });
}

/** The rule of the paper: the server searches if its queue is shorter. */
export const isServerSide = (sample: Sample, m: number): boolean => sample.server < m * sample.read;
