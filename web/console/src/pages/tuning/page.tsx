// Tuning: every setting, where its value comes from, and changes that take effect while the nodes run.

import type { ComponentChild } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Setting, TuningAnswer, TuningDocument } from "../../api/types";
import { Select } from "../../parts/choice";
import { PageFrame } from "../../parts/page";
import { Panel } from "../../parts/panel";
import { dayAndTime, plural } from "../../parts/format";
import { Empty } from "../../parts/states";
import { useWhyNot } from "../../state/permission";
import { useResource } from "../../state/resource";
import { useSeries } from "../../state/series";
import { setQuery, usePlace } from "../../state/url";
import { ChangeBar } from "./change_bar";
import { useDraft } from "./draft";
import { HistoryPanel } from "./history";
import { SettingRow } from "./setting_row";

interface Filter { find: string; section: string; only: string }

export function Tuning() {
  const tuning = useResource<TuningDocument>("tuning", 3000);
  const draft = useDraft(tuning);
  const filter = useFilter();
  const shown = (tuning.data?.settings ?? []).filter((setting) => isShown(setting, filter, draft.values));
  const names = [...new Set(shown.flatMap((setting) => (setting.series ? [setting.series] : [])))].slice(0, 16);
  const series = useSeries(names, 300, "all", 5000);
  const whyNot = useWhyNot("operator");
  const mayChange = whyNot === null;
  const [applied, setApplied] = useState<TuningAnswer | null>(null);
  return (
    <PageFrame title="Tuning" says="Settings of nodes and clients. A change of a live one reaches all nodes at once, and clients within a second.">
      {whyNot && <div class="notice notice-info">{whyNot}</div>}
      {applied && <Applied answer={applied} onSeen={() => setApplied(null)} />}
      {draft.names.length > 0 && <ChangeBar draft={draft} tuning={tuning} mayChange={mayChange} onApplied={setApplied} />}
      <Panel title="Settings" window={tuning.data ? `revision ${tuning.data.revision}` : ""} source={tuning} actions={<InForce document={tuning.data} />}>
        {tuning.data && <Filters settings={tuning.data.settings} filter={filter} />}
        {tuning.data && shown.length === 0 && <Empty>No setting fits the filter.</Empty>}
        <Sections settings={shown} render={(setting) => (
          <SettingRow key={setting.name} setting={setting} draft={draft} mayChange={mayChange} values={setting.series ? series.values(setting.series) : null} />
        )} />
      </Panel>
      <HistoryPanel revision={tuning.data?.revision ?? null} etag={tuning.etag} mayChange={mayChange} onReverted={(answer) => { setApplied(answer); tuning.reload(); }} onStale={tuning.reload} />
    </PageFrame>
  );
}

/** Stays until it was seen: what was applied is gone from the bar that applied it. */
function Applied({ answer, onSeen }: { answer: TuningAnswer; onSeen(): void }) {
  return (
    <div class="notice notice-info notice-row" role="status">
      <p>
        <strong>Applied: {plural(answer.changes.length, "change")}, revision {answer.revision}.</strong>{" "}
        {answer.changes.map((change) => `${change.name} is ${change.new ?? "its default"}`).join(", ")}
        {answer.expires_unix_ms !== null && `, until ${dayAndTime(answer.expires_unix_ms)}`}.
      </p>
      <button class="button button-small" type="button" onClick={onSeen}>Seen</button>
    </div>
  );
}

function useFilter(): Filter {
  const { query } = usePlace();
  return { find: query.get("find") ?? "", section: query.get("section") ?? "", only: query.get("only") ?? "" };
}

function isShown(setting: Setting, filter: Filter, edited: Record<string, string | null>): boolean {
  if (setting.name in edited) return true;
  const words = filter.find.toLowerCase().split(/\s+/).filter(Boolean);
  const text = `${setting.name} ${setting.meaning}`.toLowerCase();
  if (!words.every((word) => text.includes(word))) return false;
  if (filter.section && setting.section !== filter.section) return false;
  if (filter.only === "live") return setting.applies === "live";
  if (filter.only === "changed") return setting.source !== "default";
  return true;
}

function Filters({ settings, filter }: { settings: Setting[]; filter: Filter }) {
  const sections = [...new Set(settings.map((setting) => setting.section))];
  const [typed, setTyped] = useState(filter.find);
  useEffect(() => setTyped(filter.find), [filter.find]);
  return (
    <div class="row">
      <label class="field">
        <span>Find</span>
        <input type="search" value={typed} placeholder="selector exploration" onInput={(event) => { setTyped(event.currentTarget.value); setQuery({ find: event.currentTarget.value }); }} />
      </label>
      <Select label="Section" value={filter.section} options={[["", "all"], ...sections.map((one) => [one, one] as const)]} onChange={(section) => setQuery({ section })} />
      <Select
        label="Show" value={filter.only} onChange={(only) => setQuery({ only })}
        options={[["", "all settings"], ["live", "those that change live"], ["changed", "those that are not default"]] as const}
      />
    </div>
  );
}

function InForce({ document }: { document: TuningDocument | null }) {
  if (!document) return null;
  const late = document.nodes.filter((node) => !node.in_force);
  return (
    <span class="quiet">
      {late.length === 0 ? `in force on all ${document.nodes.length} nodes` : `not yet in force on ${late.map((node) => `node ${node.node}`).join(", ")}`}
    </span>
  );
}

function Sections({ settings, render }: { settings: Setting[]; render(setting: Setting): ComponentChild }) {
  const sections = [...new Set(settings.map((setting) => setting.section))];
  return (
    <>
      {sections.map((section) => (
        <section key={section} class="settings" aria-label={`Settings of ${section}`}>
          <h3>{section}</h3>
          {settings.filter((setting) => setting.section === section).map(render)}
        </section>
      ))}
    </>
  );
}
