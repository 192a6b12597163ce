// One entry: its value, its version, and the way to it.

import type { KvValue, Located } from "../../api/types";
import { bytes, inWords } from "../../parts/format";
import { Panel } from "../../parts/panel";
import { Empty } from "../../parts/states";
import { useResource } from "../../state/resource";
import { setQuery } from "../../state/url";
import { Way } from "../tree/locate";
import { textOfHex } from "./hex";

export function EntryView({ hex }: { hex: string }) {
  const value = useResource<KvValue>(`kv/${hex}`);
  const located = useResource<Located>(`tree/locate?key=${hex}`);
  const isAbsent = value.problem?.status === 404;
  const close = <button class="button button-small" type="button" onClick={() => setQuery({ key: null }, true)}>Close</button>;
  return (
    <Panel title={`Key ${textOfHex(hex)}`} id="entry" window="read once" source={isAbsent ? undefined : value} actions={close}>
      {isAbsent && <Empty>There is no such key.</Empty>}
      <div class="columns">
        {value.data && <Value entry={value.data} />}
        {located.data && <section><h3>Where it lives</h3><Way located={located.data} /></section>}
      </div>
    </Panel>
  );
}

function Value({ entry }: { entry: KvValue }) {
  const { value } = entry;
  return (
    <section>
      <h3>Value</h3>
      <dl class="facts">
        <dt>Size</dt><dd>{inWords(bytes(value.bytes))}{value.truncated && ", the beginning is shown"}</dd>
        <dt>Version</dt><dd class="mono">{String(entry.version)}</dd>
        <dt>Found by</dt><dd>{entry.found_by === "server" ? "the server" : entry.found_by.replaceAll("_", " ")}, node {entry.node}, pair {entry.pair}</dd>
      </dl>
      <pre class="json" tabIndex={0} aria-label="Value">{value.text ?? value.base64}</pre>
      {value.text === null && <p class="quiet">The value is no text; this is its base64.</p>}
    </section>
  );
}
