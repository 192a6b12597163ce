// A page's heading and its one sentence.

import type { ComponentChildren } from "preact";

export function PageFrame({ title, says, children }: { title: string; says: ComponentChildren; children: ComponentChildren }) {
  return (
    <>
      <header class="page-head"><h1>{title}</h1><p>{says}</p></header>
      <div class="page">{children}</div>
    </>
  );
}
