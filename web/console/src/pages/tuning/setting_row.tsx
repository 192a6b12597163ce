// One setting: what it is, its value and where that comes from, and the figure that it moves.

import type { Setting } from "../../api/types";
import { dayAndTime } from "../../parts/format";
import { Spark } from "../../parts/spark";
import { Marked } from "../../parts/marked";
import { errorOf, type Draft } from "./draft";

interface RowProps { setting: Setting; draft: Draft; mayChange: boolean; values: (number | null)[] | null }

export function SettingRow({ setting, draft, mayChange, values }: RowProps) {
  const isEdited = setting.name in draft.values;
  return (
    <article class={isEdited ? "setting is-edited" : "setting"} id={`setting-${setting.name}`}>
      <div class="setting-what">
        <h4><code>{setting.name}</code></h4>
        <p><Marked text={setting.meaning} /></p>
        <p class="quiet">{bounds(setting)}</p>
      </div>
      <Value setting={setting} draft={draft} mayChange={mayChange} />
      <div class="setting-moves">
        {values && <><Spark values={values} label={setting.series ?? ""} /><span class="quiet">{setting.series?.replaceAll("_", " ")}, 5 min</span></>}
      </div>
    </article>
  );
}

function bounds(setting: Setting): string {
  const unit = setting.unit ? ` ${setting.unit}` : "";
  if (setting.choices) return `One of ${setting.choices.join(", ")}. Default ${setting.default}.`;
  const range = setting.min !== null && setting.max !== null ? `${setting.or_none ? "0 for none, or from" : "From"} ${setting.min} to ${setting.max}${typeof setting.min === "number" ? unit : ""}. ` : "";
  return `${range}Default ${setting.default}.`;
}

const SOURCES: Record<string, string> = {
  default: "by default", file: "from the configuration file", environment: "from the environment", flag: "from a flag", admin: "set here, for the cluster",
};

function Value({ setting, draft, mayChange }: Omit<RowProps, "values">) {
  const isEdited = setting.name in draft.values;
  const edited = draft.values[setting.name];
  const error = errorOf(draft, setting.name);
  const isLive = setting.applies === "live" && mayChange;
  return (
    <div class="setting-value">
      {isLive ? <Editor setting={setting} value={isEdited ? edited ?? "" : setting.value} onChange={(value) => draft.edit(setting, value)} isWrong={error !== undefined} /> : <b class="setting-now">{setting.value}</b>}
      {error && <p class="setting-error" id={`error-${setting.name}`} role="alert">{error.detail}</p>}
      <p class="quiet">
        {isEdited ? `now ${setting.value}` : SOURCES[setting.source] ?? setting.source}
        {setting.expires_unix_ms !== null && `, until ${dayAndTime(setting.expires_unix_ms)}`}
        {isLive && setting.source === "admin" && !isEdited && <> <button class="button button-quiet button-small" type="button" onClick={() => draft.edit(setting, null)}>Take back</button></>}
        {isEdited && <> <button class="button button-quiet button-small" type="button" onClick={() => draft.leave(setting.name)}>Undo</button></>}
      </p>
      <p class="quiet">{setting.applies === "live" ? <span class="tag tag-strong">changes live</span> : <><span class="tag">{setting.applies === "restart" ? "at a restart" : "at creation"}</span> {setting.why_not_live}</>}</p>
    </div>
  );
}

interface EditorProps { setting: Setting; value: string; isWrong: boolean; onChange(value: string): void }

function Editor({ setting, value, isWrong, onChange }: EditorProps) {
  const common = { name: setting.name, value, "aria-label": setting.name, "aria-invalid": isWrong, "aria-describedby": isWrong ? `error-${setting.name}` : undefined };
  if (setting.choices) {
    return (
      <select {...common} onChange={(event) => onChange(event.currentTarget.value)}>
        {setting.choices.map((choice) => <option key={choice} value={choice}>{choice}</option>)}
      </select>
    );
  }
  return <input {...common} type="text" spellcheck={false} autocomplete="off" onInput={(event) => onChange(event.currentTarget.value)} />;
}
