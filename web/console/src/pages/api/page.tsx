// API: the OpenAPI document of this node, rendered here.

import { PageFrame } from "../../parts/page";
import { Panel } from "../../parts/panel";
import { useResource } from "../../state/resource";
import { setQuery, useParam } from "../../state/url";
import { operationsOf, type OpenApi } from "./openapi";
import { Route } from "./route";

export function Api() {
  const document = useResource<OpenApi>("/api/openapi.json");
  const find = (useParam("find") ?? "").toLowerCase();
  const operations = document.data ? operationsOf(document.data).filter((one) => `${one.method} ${one.path} ${one.operation.summary ?? ""}`.toLowerCase().includes(find)) : [];
  const tags = [...new Set(operations.map((one) => one.tag))];
  return (
    <PageFrame title="API" says={<>All that this console shows comes from these routes. The document: <a href="/api/openapi.json">/api/openapi.json</a></>}>
      <Panel title="Routes" window={document.data ? `${document.data.info?.title ?? ""} ${document.data.info?.version ?? ""}` : ""} source={document}>
        <label class="field"><span>Find</span><input type="search" value={find} onInput={(event) => setQuery({ find: event.currentTarget.value })} placeholder="tree" /></label>
        {tags.map((tag) => (
          <section key={tag} class="stack-tight" aria-label={`Routes of ${tag}`}>
            <h3>{tag}</h3>
            {operations.filter((one) => one.tag === tag).map((one) => <Route key={`${one.method} ${one.path}`} route={one} root={document.data!} />)}
          </section>
        ))}
      </Panel>
    </PageFrame>
  );
}
