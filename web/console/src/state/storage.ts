// What is kept in this browser. Storage may be blocked: then it is kept until the page is loaded anew.

type Where = "localStorage" | "sessionStorage";

const unkept = new Map<string, string>();

export function kept(where: Where, name: string): string | null {
  try {
    return window[where].getItem(name);
  } catch {
    return unkept.get(name) ?? null;
  }
}

/** Null removes it. */
export function keep(where: Where, name: string, value: string | null): void {
  if (value === null) unkept.delete(name);
  else unkept.set(name, value);
  try {
    if (value === null) window[where].removeItem(name);
    else window[where].setItem(name, value);
  } catch {
    // the map above has it
  }
}
