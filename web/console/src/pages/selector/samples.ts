// Recorded seconds of one client and one server, as the two sides of the inequality.

import type { Mark, SelectorSeries } from "../../api/types";

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
    // a second in which one of them is not known is none: it has no place on the plot
    const [l_s, l_r, rtt] = [l_s_ns[index], l_r_ns[index], rtt_ns[index]];
    if (typeof l_s !== "number" || typeof l_r !== "number" || typeof rtt !== "number") return [];
    const reads = m[index];
    if (typeof reads !== "number") return [];
    return [{ at, server: l_s - rtt, read: l_r - rtt, m: reads, share: one_sided_share[index] ?? null, searches: searches_per_second[index] ?? 0 }];
  });
}

/** The rule of the paper: the server searches if its queue is shorter. */
export const isServerSide = (sample: Sample, m: number): boolean => sample.server < m * sample.read;

/** The first second that was decided with other settings, of each change among the recorded ones. */
export function marked(samples: Sample[], marks: Mark[]): { sample: Sample; index: number; mark: Mark }[] {
  const first = samples[0]?.at ?? Infinity;
  return marks.filter((mark) => mark.at_unix_ms >= first).flatMap((mark) => {
    const index = samples.findIndex((sample) => sample.at >= mark.at_unix_ms);
    return index < 0 ? [] : [{ sample: samples[index]!, index, mark }];
  });
}
