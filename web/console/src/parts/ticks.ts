// Round places on an axis from zero on.

/** At most five, each 1, 2 or 5 times a power of ten apart. */
export function ticks(top: number): number[] {
  const rough = top / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= rough) ?? power * 10;
  const list: number[] = [];
  for (let at = step; at <= top; at += step) list.push(at);
  return list;
}
