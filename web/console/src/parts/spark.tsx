// A line of a few centimetres without axes. The figure beside it has the number.

interface SparkProps { values: (number | null)[]; label: string; width?: number; height?: number }

/** Pieces between gaps, as paths. */
export function pathOf(values: (number | null)[], x: (index: number) => number, y: (value: number) => number): string {
  let path = "";
  let isDrawing = false;
  values.forEach((value, index) => {
    if (value === null || value === undefined) isDrawing = false;
    else {
      path += `${isDrawing ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`;
      isDrawing = true;
    }
  });
  return path;
}

export function Spark({ values, label, width = 120, height = 24 }: SparkProps) {
  const known = values.filter((value): value is number => value !== null);
  if (known.length < 2) return <svg class="spark" viewBox={`0 0 ${width} ${height}`} aria-hidden="true" />;
  const top = Math.max(...known, 1e-9);
  const path = pathOf(
    values,
    (index) => (index / (values.length - 1)) * width,
    (value) => height - 1.5 - (value / top) * (height - 3),
  );
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" role="img" aria-label={`History: ${label}`}>
      <path d={path} />
    </svg>
  );
}
