// One of a few, by buttons or by a list.

interface ChoiceProps<T extends string> {
  label: string; value: T; options: readonly (readonly [T, string])[]; onChange(value: T): void;
}

export function Segments<T extends string>({ label, value, options, onChange }: ChoiceProps<T>) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map(([option, words]) => (
        <button key={option} type="button" aria-pressed={option === value} onClick={() => onChange(option)}>{words}</button>
      ))}
    </div>
  );
}

export function Select<T extends string>({ label, value, options, onChange }: ChoiceProps<T>) {
  return (
    <label class="field">
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value as T)}>
        {options.map(([option, words]) => <option key={option} value={option}>{words}</option>)}
      </select>
    </label>
  );
}
