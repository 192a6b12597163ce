// Where a key lives, and by which tree nodes a search comes there.

import type { Located } from "../../api/types";
import { bytes, hexOfTyped, inWords } from "../../parts/format";
import { Panel } from "../../parts/panel";
import { HiddenNote } from "../../parts/states";
import { useWhyNoKeys } from "../../state/permission";
import { useResource } from "../../state/resource";
import { setQuery, useParam } from "../../state/url";

export function LocateForm() {
  const hex = useParam("locate");
  const whyNoKeys = useWhyNoKeys();
  const located = useResource<Located>(hex && whyNoKeys === null ? `tree/locate?key=${hex}` : null);
  const submit = (event: Event) => {
    event.preventDefault();
    const typed = String(new FormData(event.currentTarget as HTMLFormElement).get("key") ?? "");
    setQuery({ locate: hexOfTyped(typed) || null });
  };
  if (whyNoKeys) return <Panel title="Find a key"><HiddenNote why={whyNoKeys} /></Panel>;
  return (
    <Panel title="Find a key" window="asks once">
      <form class="row" onSubmit={submit}>
        <label class="field"><span>Key</span><input name="key" type="text" spellcheck={false} placeholder="apple, or \x00\xff" /></label>
        <button class="button" type="submit">Find it</button>
      </form>
      {hex && <Panel title="The way to it" source={located}>{located.data && <Way located={located.data} />}</Panel>}
    </Panel>
  );
}

export function Way({ located }: { located: Located }) {
  return (
    <dl class="facts">
      <dt>Key</dt><dd class="mono">{located.key.text}</dd>
      <dt>Found</dt><dd>{located.found ? `yes, ${inWords(bytes(located.bytes))}` : "no, it would live here"}</dd>
      <dt>Lives in</dt>
      <dd><a href={`/console/tree?meganode=${located.meganode}`}>meganode {located.meganode}</a>, pair {located.pair}, node {located.node}</dd>
      <dt>Tree nodes</dt>
      <dd>
        {located.path.map((step, index) => (
          <span key={step.index}>
            {index > 0 && " → "}
            <a href={`/console/tree?meganode=${located.meganode}&tree_node=${step.index}`}>{step.index}</a> <span class="quiet">level {step.level}</span>
          </span>
        ))}
      </dd>
      <dt>Searched by</dt><dd>{located.searched === "server" ? "the server" : "one-sided reads"}</dd>
    </dl>
  );
}
