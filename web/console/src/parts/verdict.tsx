// The sentence that says how the cluster is.

import { isAbsent, type Status } from "../api/types";
import { Sign } from "./badge";
import { age } from "./format";

export function Verdict({ status, ageMs, isStale }: { status: Status; ageMs: number; isStale: boolean }) {
  const { verdict, faults_survivable: faults } = status;
  if (isStale) {
    return (
      <section class="verdict verdict-unknown" aria-label="Verdict">
        <Sign level="unknown" />
        <h2 aria-live="polite">How the cluster is now is not known.</h2>
        <span class="live">node {status.answered_by} answered · {age(ageMs)}</span>
        <p>It said then: {verdict.sentence}</p>
      </section>
    );
  }
  return (
    <section class={`verdict verdict-${verdict.level}`} aria-label="Verdict">
      <Sign level={verdict.level} />
      <h2 aria-live="polite"><span class="unseen">{verdict.level}: </span>{verdict.sentence}</h2>
      <span class="live">node {status.answered_by} answers · {age(ageMs)}</span>
      <p>
        {faults.nodes === 0 ? "No node may fail now." : `${faults.nodes} of ${status.nodes.filter((node) => !isAbsent(node)).length} nodes may fail now.`} {faults.why}
      </p>
    </section>
  );
}
