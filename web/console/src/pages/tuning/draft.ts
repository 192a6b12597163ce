// Values that were typed and not yet applied, and the revision that they were typed over.

import { useRef, useState } from "preact/hooks";
import { idempotencyKey } from "../../api/client";
import type { FieldError } from "../../api/problem";
import type { Setting, TuningDocument } from "../../api/types";
import type { Resource } from "../../state/resource";

/** Null: back to the value of its file, variable or default. */
export type Values = Record<string, string | null>;

export interface Draft {
  values: Values; names: string[]; errors: FieldError[];
  /** What was in force when the first value was typed: the condition of the change. */
  base: { etag: string; settings: Setting[] } | null;
  /** Of the values as they are now: they are applied once, also if they are sent again. */
  key(more: string): string;
  edit(setting: Setting, value: string | null): void;
  leave(name: string): void;
  clear(): void;
  setErrors(errors: FieldError[]): void;
  /** Takes what is in force now for the base, after it was shown. */
  rebase(etag: string, settings: Setting[]): void;
}

export function useDraft(tuning: Resource<TuningDocument>): Draft {
  const [values, setValues] = useState<Values>({});
  const [errors, setErrors] = useState<FieldError[]>([]);
  const base = useRef<Draft["base"]>(null);
  const keyed = useRef({ of: "", key: "" });
  const names = Object.keys(values);
  const drop = (name: string) => {
    const { [name]: _, ...rest } = values;
    if (Object.keys(rest).length === 0) base.current = null;
    setValues(rest);
  };
  return {
    values, names, errors, base: base.current,
    key(more) {
      const of = JSON.stringify([values, base.current?.etag, more]);
      if (keyed.current.of !== of) keyed.current = { of, key: idempotencyKey() };
      return keyed.current.key;
    },
    edit(setting, value) {
      if (!base.current && tuning.data && tuning.etag) base.current = { etag: tuning.etag, settings: tuning.data.settings };
      setErrors([]);
      if (value === setting.value) drop(setting.name);
      else setValues({ ...values, [setting.name]: value });
    },
    leave: drop,
    clear() {
      base.current = null;
      setErrors([]);
      setValues({});
    },
    setErrors,
    rebase(etag, settings) {
      base.current = { etag, settings };
      setValues({ ...values });
    },
  };
}

export const errorOf = (draft: Draft, name: string): FieldError | undefined =>
  draft.errors.find((error) => error.pointer.replace(/^#?\//, "") === name);

/** Settings whose value differs between two moments. */
export function differences(before: Setting[], after: Setting[]): { name: string; old: string; new: string }[] {
  const old = new Map(before.map((setting) => [setting.name, setting.value]));
  return after.filter((setting) => old.get(setting.name) !== setting.value)
    .map((setting) => ({ name: setting.name, old: old.get(setting.name) ?? "–", new: setting.value }));
}
