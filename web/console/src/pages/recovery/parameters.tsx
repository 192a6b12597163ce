// The numbers and flags that a kind of drill takes, within its bounds. What differs from the default lives in the address.

import type { DrillKind, DrillParameter } from "../../api/types";
import { setQuery, usePlace } from "../../state/url";

export type DrillValues = Record<string, number | boolean>;

const NAMES: Record<string, string> = {
  down_ms: "Lasts", delay_ms: "Each write later by", before_ms: "Traffic before", threads: "Clients", rate: "Rate, all clients", keep: "Keep its entries",
};

/** As a person decides: how long first. What has no name here comes last. */
function inOrder(kind: DrillKind): [string, DrillParameter][] {
  const order = Object.keys(NAMES);
  const rank = (name: string) => (order.includes(name) ? order.indexOf(name) : order.length);
  return Object.entries(kind.parameters).sort(([a], [b]) => rank(a) - rank(b));
}

const isFlag = (parameter: DrillParameter): boolean => typeof parameter.default === "boolean";

export function useParameters(kind: DrillKind | undefined): { values: DrillValues; wrong: string[] } {
  const { query } = usePlace();
  const values: DrillValues = {};
  const wrong: string[] = [];
  for (const [name, parameter] of Object.entries(kind?.parameters ?? {})) {
    const text = query.get(name);
    if (isFlag(parameter)) values[name] = text === null ? parameter.default : text === "1";
    else {
      const value = text === null ? Number(parameter.default) : Number(text);
      values[name] = value;
      if (!Number.isInteger(value) || value < (parameter.min ?? 0) || value > (parameter.max ?? Infinity)) wrong.push(name);
    }
  }
  return { values, wrong };
}

export function ParameterFields({ kind, values, wrong }: { kind: DrillKind; values: DrillValues; wrong: string[] }) {
  return (
    <div class="row">
      {inOrder(kind).map(([name, parameter]) => {
        const label = NAMES[name] ?? name.replaceAll("_", " ");
        if (isFlag(parameter)) {
          return (
            <label key={name} class="check" title={parameter.meaning}>
              <input type="checkbox" checked={values[name] === true} onChange={(event) => setQuery({ [name]: event.currentTarget.checked === parameter.default ? null : event.currentTarget.checked ? 1 : 0 })} />
              {label}
            </label>
          );
        }
        const bounds = `${parameter.min ?? 0} to ${parameter.max ?? "any"}`;
        const isWrong = wrong.includes(name);
        return (
          <label key={name} class="field" title={parameter.meaning}>
            <span>{label}{parameter.unit && `, ${parameter.unit}`}</span>
            <input
              type="number" name={name} min={parameter.min} max={parameter.max} step={1} value={Number.isNaN(values[name]) ? "" : Number(values[name])} aria-invalid={isWrong}
              aria-describedby={`bounds-${name}`} onInput={(event) => setQuery({ [name]: event.currentTarget.value === String(parameter.default) ? null : event.currentTarget.value || "none" })}
            />
            <span id={`bounds-${name}`} class={isWrong ? "setting-error" : ""}>{bounds}</span>
          </label>
        );
      })}
    </div>
  );
}
