// Tree: where keys live and how full their meganodes are, on one key axis.

import { useMemo } from "preact/hooks";
import type { BucketsDocument } from "../../api/types";
import { Segments } from "../../parts/choice";
import { Tile, Tiles } from "../../parts/figure";
import { count, hexOfTyped, keyText, share, shortened, whole } from "../../parts/format";
import { PageFrame } from "../../parts/page";
import { Panel, type Source } from "../../parts/panel";
import { Empty, HiddenNote } from "../../parts/states";
import { useWhyNoKeys } from "../../state/permission";
import { useResource, useShownUntilNext } from "../../state/resource";
import { setQuery, useParam, usePlace } from "../../state/url";
import { Bands } from "./bands";
import { BucketTable } from "./bucket_table";
import { CheckPanel } from "./check";
import { MeganodeView } from "./meganode";
import { LocateForm } from "./locate";
import { useMeasure } from "./measure";
import { withPlaces } from "./places";
import { showAll, zoomIn, zoomOut } from "./zoom";

const COLUMNS = 256;

function bucketsPath(from: string | null, to: string | null): string {
  const bounds = `${from ? `&from=${from}` : ""}${to ? `&to=${to}` : ""}`;
  return `tree/buckets?columns=${COLUMNS}${bounds}`;
}

export function Tree() {
  const { query } = usePlace();
  const [from, to] = [query.get("from"), query.get("to")];
  const meganode = query.get("meganode");
  const whyNoKeys = useWhyNoKeys();
  // Who is told no keys may name none. Until that is known all keys are asked for.
  const [fromAsked, toAsked] = whyNoKeys === null ? [from, to] : [null, null];
  const answer = useShownUntilNext(useResource<BucketsDocument>(bucketsPath(fromAsked, toAsked), 1000));
  const buckets = { ...answer, data: useMemo(() => answer.data && withPlaces(answer.data), [answer.data]) };
  const isZoomed = !buckets.data?.keys_left_out && (from !== null || to !== null);
  return (
    <PageFrame title="Tree" says="All keys from left to right: who writes them, who owns them, how full their meganodes are.">
      {buckets.data && <Figures document={buckets.data} source={buckets} />}
      <Panel
        title="Key space" window={rangeWords(buckets.data)} source={buckets}
        actions={<Controls isZoomed={isZoomed} />}
      >
        {whyNoKeys && <HiddenNote why={`${whyNoKeys} Here are the meganodes in their order, without heat.`} />}
        {buckets.data && <KeySpace document={buckets.data} isZoomed={isZoomed} />}
      </Panel>
      {meganode && <MeganodeView key={meganode} id={meganode} />}
      <LocateForm />
      <CheckPanel />
    </PageFrame>
  );
}

function rangeWords(document: BucketsDocument | null): string {
  if (!document || document.keys_left_out) return "";
  return `${shortened(keyText(document.low), 24)} to ${shortened(keyText(document.high), 24)}`;
}

function Figures({ document, source }: { document: BucketsDocument; source: Source }) {
  const { buckets, splits } = document;
  const scope = isWhole(document) ? "now, whole store" : "now, of what is told";
  const nodes = buckets.reduce((sum, bucket) => sum + bucket.tree_nodes, 0);
  const all = buckets.reduce((sum, bucket) => sum + bucket.tree_nodes_all, 0);
  return (
    <Tiles narrow source={source}>
      <Tile name="Entries" value={count(isWhole(document) || document.entries_all > 0 ? document.entries_all : null)} window={scope} />
      <Tile name="Meganodes" value={count(document.meganodes_all)} window={scope} />
      <Tile name="Height" value={{ number: whole(document.levels_max), unit: "levels" }} window="highest meganode" />
      <Tile name="Tree nodes in use" value={share(all === 0 ? null : nodes / all)} window="of the slots shown" note={`${inThousands(nodes)} of ${inThousands(all)}`} />
      <Tile name="Splits" value={{ number: whole(splits.finished), unit: "done" }} window="since start" note={`${splits.under_way} under way, ${splits.aborted} aborted, ${splits.merged} emptied and merged`} />
    </Tiles>
  );
}

const inThousands = (value: number): string => (value < 10_000 ? whole(value) : `${whole(value / 1000)} k`);

function Controls({ isZoomed }: { isZoomed: boolean }) {
  const measure = useMeasure();
  return (
    <>
      {isZoomed && <button class="button button-small" type="button" onClick={zoomOut}>Zoom out</button>}
      {isZoomed && <button class="button button-small" type="button" onClick={showAll}>Show all keys</button>}
      <Segments
        label="Width by" value={measure} options={[["entries", "Width: entries"], ["bytes", "bytes"]] as const}
        onChange={(value) => setQuery({ width: value === "entries" ? null : value })}
      />
    </>
  );
}

/** Whether every range was reported and is served: only then no entry means that there is none. */
const isWhole = ({ buckets, missing = [] }: BucketsDocument): boolean =>
  missing.length === 0 && buckets.every((bucket) => bucket.node !== null && bucket.state !== "not told" && bucket.state !== "unserved");

function KeySpace({ document, isZoomed }: { document: BucketsDocument; isZoomed: boolean }) {
  const measure = useMeasure();
  const isTable = useParam("view") === "table";
  if (document.buckets.length === 0 && !isWhole(document)) return <Empty>No meganode is told of by the nodes that answer.</Empty>;
  if (document.buckets.length === 0) return <Empty command="cell load words.tsv --key 1 --value 2 --server HOST:PORT">No meganode is told of here. A store that was filled looks different:</Empty>;
  return (
    <div class="stack">
      {document.entries_all === 0 && isWhole(document) && <Empty command="cell load words.tsv --key 1 --value 2 --server HOST:PORT">The tree is empty. Fill it:</Empty>}
      <Bands document={document} measure={measure} />
      <div class="row row-between">
        {document.keys_left_out ? <span /> : <ZoomForm key={isZoomed ? `${document.low.hex} ${document.high?.hex}` : "all"} document={document} />}
        <button class="button button-small" type="button" aria-pressed={isTable} onClick={() => setQuery({ view: isTable ? null : "table" })}>
          {isTable ? "Hide the table" : "Show as a table"}
        </button>
      </div>
      {isTable && <BucketTable document={document} />}
    </div>
  );
}

function ZoomForm({ document }: { document: BucketsDocument }) {
  const submit = (event: Event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget as HTMLFormElement);
    const hex = (name: string) => hexOfTyped(String(form.get(name) ?? "")) || null;
    zoomIn(hex("from"), hex("to"));
  };
  return (
    <form class="row" onSubmit={submit}>
      <label class="field"><span>From key</span><input name="from" type="text" spellcheck={false} defaultValue={document.low.text} placeholder="the beginning" /></label>
      <label class="field"><span>To key</span><input name="to" type="text" spellcheck={false} defaultValue={document.high?.text ?? ""} placeholder="the end" /></label>
      <button class="button" type="submit">Show these keys</button>
    </form>
  );
}
