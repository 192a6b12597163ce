// Figures in words: a number and its unit, apart, so that numbers can be aligned.

export interface Figure { number: string; unit: string }

const NONE: Figure = { number: "–", unit: "" };

/** At most three digits that count, without a tail of zeros. */
export function digits(value: number): string {
  const size = Math.abs(value);
  if (size >= 100 || value === 0) return Math.round(value).toLocaleString("en-US");
  if (size >= 10) return value.toFixed(1).replace(/\.0$/, "");
  if (size >= 0.01) return value.toFixed(2).replace(/\.?0+$/, "");
  return value.toPrecision(2);
}

/** A number that may not be known. */
export const digitsOf = (value: number | null | undefined): string =>
  value === null || value === undefined ? "–" : digits(value);

export const whole = (value: number | null | undefined): string =>
  value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en-US");

function scaled(value: number | null | undefined, steps: [number, string][]): Figure {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  const step = steps.find(([least]) => size >= least) ?? steps[steps.length - 1]!;
  const divisor = step[0] === 0 ? 1 : step[0];
  return { number: digits(value / divisor), unit: step[1] };
}

export const bytes = (value: number | null | undefined): Figure =>
  scaled(value, [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [0, "B"]]);

export const bytesRate = (value: number | null | undefined): Figure => {
  const { number, unit } = bytes(value);
  return { number, unit: unit && `${unit}/s` };
};

export const nanoseconds = (value: number | null | undefined): Figure =>
  scaled(value, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [0, "ns"]]);

export const microseconds = (value: number | null | undefined): Figure =>
  nanoseconds(value === null || value === undefined ? null : value * 1000);

export const seconds = (value: number | null | undefined): Figure =>
  nanoseconds(value === null || value === undefined ? null : value * 1e9);

export const milliseconds = (value: number | null | undefined): Figure =>
  scaled(value, [[3_600_000, "h"], [60_000, "min"], [1000, "s"], [0, "ms"]]);

/** Of what is known; null where nothing is. */
export const sumOfKnown = (values: (number | null)[]): number | null =>
  values.reduce<number | null>((sum, value) => (value === null ? sum : (sum ?? 0) + value), null);

/** Thousands only from ten thousand on: "9,800 /s" reads better than "9.8 k/s". */
export const perSecond = (value: number | null | undefined): Figure =>
  Math.abs(value ?? 0) < 1e4 ? scaled(value, [[0, "/s"]]) : scaled(value, [[1e6, "M/s"], [1e3, "k/s"]]);

export const count = (value: number | null | undefined): Figure =>
  scaled(value, [[1e9, "G"], [1e6, "M"], [0, ""]]);

export const share = (value: number | null | undefined): Figure =>
  value === null || value === undefined ? NONE : { number: digits(value * 100), unit: "%" };

export const inWords = ({ number, unit }: Figure): string => (unit ? `${number} ${unit}` : number);

/** How a series of this unit is written. */
export function byUnit(unit: string): (value: number | null | undefined) => Figure {
  if (unit === "us") return microseconds;
  if (unit === "ns") return nanoseconds;
  if (unit === "ms") return milliseconds;
  if (unit === "bytes" || unit === "B") return bytes;
  if (unit === "B/s" || unit === "bytes/s") return bytesRate;
  if (unit === "1/s") return perSecond;
  if (unit === "share") return share;
  return (value) => (value === null || value === undefined ? NONE : { number: digits(value), unit });
}

export function age(ms: number): string {
  if (ms < 1500) return "now";
  if (ms < 90_000) return `${Math.round(ms / 1000)} s ago`;
  if (ms < 5_400_000) return `${Math.round(ms / 60_000)} min ago`;
  if (ms < 129_600_000) return `${Math.round(ms / 3_600_000)} h ago`;
  return `${Math.round(ms / 86_400_000)} days ago`;
}

export const duration = (ms: number): string => {
  if (ms < 90_000) return inWords(milliseconds(ms));
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} days`;
};

const two = (value: number): string => String(value).padStart(2, "0");

/** Time of day in this browser's zone. */
export function clockTime(unixMs: number): string {
  const date = new Date(unixMs);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

export function dayAndTime(unixMs: number): string {
  const date = new Date(unixMs);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clockTime(unixMs)}`;
}

export function shortened(text: string, length: number): string {
  return text.length <= length ? text : `${text.slice(0, length - 1)}…`;
}

export const plural = (number: number, one: string, many = `${one}s`): string =>
  `${whole(number)} ${number === 1 ? one : many}`;

/** A key as it is shown: the empty one is the lowest of all. */
export const keyText = (key: { text: string } | null, none = "the end"): string =>
  key === null ? none : key.text === "" ? "the beginning" : key.text;

const encoder = new TextEncoder();

export const hexOf = (text: string): string =>
  Array.from(encoder.encode(text), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Bytes of what was typed: text, in which `\xNN` is a byte and `\\` a backslash. */
export function hexOfTyped(typed: string): string {
  const parts = typed.split(/(\\x[0-9a-fA-F]{2}|\\\\)/);
  const hex = (part: string) =>
    part === "\\\\" ? "5c" : /^\\x[0-9a-fA-F]{2}$/.test(part) ? part.slice(2).toLowerCase() : hexOf(part);
  return parts.map(hex).join("");
}
