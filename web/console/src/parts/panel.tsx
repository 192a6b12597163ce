// A section of a page: heading, what it was made from and when, actions, and its states.

import type { ComponentChildren } from "preact";
import type { ApiProblem } from "../api/problem";
import type { Missing } from "../api/types";
import { age, whole } from "./format";
import { Loading, MissingNote, ProblemNote, StaleNote } from "./states";

/** What a panel needs to know of where its data comes from; a resource and a live topic both have it. */
export interface Source {
  data: { missing?: Missing[]; truncated?: boolean; total?: number } | null; problem: ApiProblem | null; ageMs: number; isStale: boolean;
}

interface PanelProps {
  title: string;
  /** The time over which the figures were measured, and other facts that hold for all of them. */
  window?: string;
  source?: Source; actions?: ComponentChildren; children?: ComponentChildren; id?: string; wide?: boolean;
  /** False: the page, or the panel before it, says already whose answer is missing, and that it is stale. */
  saysState?: boolean;
}

export function Panel({ title, window, source, actions, children, id, wide, saysState = true }: PanelProps) {
  const name = id ?? title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  const isStale = source?.isStale ?? false;
  return (
    <section class={`panel${wide ? " panel-wide" : ""}${isStale ? " is-stale" : ""}`} aria-labelledby={`${name}-title`} id={name}>
      <header class="panel-head">
        <h2 id={`${name}-title`}>{title}</h2>
        <span class="panel-window">
          {window}
          {window && source?.data && " · "}
          {source?.data && <span class="panel-age">{age(source.ageMs)}</span>}
        </span>
        {actions && <div class="panel-actions">{actions}</div>}
      </header>
      <Body title={title} source={source} saysState={saysState}>{children}</Body>
    </section>
  );
}

function Body({ title, source, saysState, children }: Pick<PanelProps, "title" | "source" | "children" | "saysState">) {
  if (!source) return <>{children}</>;
  const { data, problem, isStale, ageMs } = source;
  if (!data) return problem ? <ProblemNote problem={problem} /> : <Loading what={title.toLowerCase()} />;
  return (
    <>
      {problem && <ProblemNote problem={problem} />}
      {isStale && !problem && saysState && <StaleNote ageMs={ageMs} />}
      {saysState && <MissingNote missing={data.missing} />}
      {data.truncated && <p class="notice notice-info" role="status">The list is cut: not all {data.total !== undefined && whole(data.total)} rows are in it.</p>}
      {children}
    </>
  );
}
