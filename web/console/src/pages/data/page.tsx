// Data: the store in the order of its keys, an entry's value, and where it lives.

import type { KvPage } from "../../api/types";
import { Segments } from "../../parts/choice";
import { Figure } from "../../parts/figure";
import { bytes, hexOfTyped, plural, shortened } from "../../parts/format";
import { PageFrame } from "../../parts/page";
import { Panel } from "../../parts/panel";
import { Empty, HiddenNote } from "../../parts/states";
import { Table } from "../../parts/table";
import { useWhyNoKeys } from "../../state/permission";
import { useResource } from "../../state/resource";
import { place, setQuery, urlWith, usePlace } from "../../state/url";
import { EntryView } from "./entry";
import { textOfHex } from "./hex";

const PAGE = 50;
/** Beginnings of the pages before this one, in the address as `pages`. The first page has none: it is FIRST. */
const PAGES_KEPT = 50;
const FIRST = "first";

const before = (): string[] => (place.get().query.get("pages") ?? "").split(",").filter(Boolean);

function goOn(next: string | null): void {
  const here = place.get().query.get("from") ?? FIRST;
  setQuery({ from: next, pages: [...before(), here].slice(-PAGES_KEPT).join(",") }, true);
}

function goBack(): void {
  const pages = before();
  const last = pages.pop() ?? FIRST;
  setQuery({ from: last === FIRST ? null : last, pages: pages.join(",") }, true);
}

export function Data() {
  const { query } = usePlace();
  const [key, from, prefix] = [query.get("key"), query.get("from"), query.get("prefix")];
  const isReverse = query.get("order") === "back";
  const path = `kv?limit=${PAGE}&reverse=${isReverse ? 1 : 0}${from ? `&from=${from}` : ""}${prefix ? `&prefix=${prefix}` : ""}`;
  const whyNoKeys = useWhyNoKeys();
  const page = useResource<KvPage>(whyNoKeys === null ? path : null);
  const says = "Entries in the order of their keys.";
  if (whyNoKeys) return <PageFrame title="Data" says={says}><HiddenNote why={whyNoKeys} /></PageFrame>;
  return (
    <PageFrame title="Data" says={says}>
      <SeekForm key={`${key ?? ""} ${prefix ?? ""}`} prefix={prefix} />
      {key && whyNoKeys === null && <EntryView key={key} hex={key} />}
      <Panel
        title="Entries" window={page.data ? `${plural(page.data.entries.length, "entry", "entries")}${prefix ? ` with the prefix ${textOfHex(prefix)}` : ""}` : ""} source={page}
        actions={<>
          <Segments label="Order" value={isReverse ? "back" : "forth"} options={[["forth", "Ascending"], ["back", "Descending"]] as const} onChange={(order) => setQuery({ order: order === "back" ? order : null, from: null, pages: null })} />
          <button class="button button-small" type="button" onClick={page.reload}>Read again</button>
        </>}
      >
        {page.data && <Rows page={page.data} chosen={key} isFiltered={prefix !== null || from !== null} isLater={from !== null} hasBefore={query.has("pages")} />}
      </Panel>
    </PageFrame>
  );
}

function SeekForm({ prefix }: { prefix: string | null }) {
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const form = event.currentTarget as HTMLFormElement;
    const typed = hexOfTyped(String(new FormData(form).get("typed") ?? ""));
    const how = (event.submitter as HTMLButtonElement | null)?.value ?? "prefix";
    if (how === "key") setQuery({ key: typed || null }, true);
    else if (how === "from") setQuery({ from: typed || null, prefix: null, key: null, pages: null }, true);
    else setQuery({ prefix: typed || null, from: null, key: null, pages: null }, true);
  };
  return (
    <form class="panel" onSubmit={submit} aria-label="Seek">
      <div class="row">
        <label class="field field-wide"><span>Key or prefix; \x00 is a byte</span><input name="typed" type="text" spellcheck={false} defaultValue={prefix ? textOfHex(prefix) : ""} placeholder="apple" /></label>
        <button class="button button-main" type="submit" value="prefix">List this prefix</button>
        <button class="button" type="submit" value="from">List from this key</button>
        <button class="button" type="submit" value="key">Get this key</button>
      </div>
    </form>
  );
}

interface RowsProps { page: KvPage; chosen: string | null; isFiltered: boolean; isLater: boolean; hasBefore: boolean }

function Rows({ page, chosen, isFiltered, isLater, hasBefore }: RowsProps) {
  if (page.entries.length === 0) {
    return isFiltered ? <Empty>No key fits here. Keys compare byte by byte.</Empty> : <Empty command="cell load words.tsv --key 1 --value 2 --server HOST:PORT">The store is empty. Fill it:</Empty>;
  }
  return (
    <>
      <Table
        caption="Entries" rows={page.entries} rowKey={(entry) => entry.key.hex} isChosen={(entry) => entry.key.hex === chosen}
        columns={[
          { name: "key", cell: (entry) => <a class="mono" href={urlWith({ key: entry.key.hex })}>{shortened(entry.key.text, 48) || "(empty)"}</a> },
          { name: "value begins with", cell: (entry) => <span class="mono">{shortened(entry.value_preview, 64)}</span> },
          { name: "size", isNumber: true, cell: (entry) => <Figure value={bytes(entry.bytes)} /> },
          { name: "version", isMinor: true, cell: (entry) => <span class="mono">{entry.version}</span> },
        ]}
      />
      <nav class="row" aria-label="Pages of entries">
        <button class="button" type="button" onClick={() => setQuery({ from: null, pages: null }, true)} disabled={!isLater}>First page</button>
        <button class="button" type="button" onClick={goBack} disabled={!hasBefore}>Previous</button>
        <button class="button" type="button" disabled={page.next === null} onClick={() => goOn(page.next)}>Next</button>
        {page.next === null && <span class="quiet">This is the end.</span>}
      </nav>
    </>
  );
}
