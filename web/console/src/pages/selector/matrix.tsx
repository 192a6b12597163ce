// Clients down, servers across: each cell the share of searches that the client does itself.

import type { SelectorPair } from "../../api/types";
import { Figure } from "../../parts/figure";
import { age, digitsOf, inWords, nanoseconds, perSecond, share, shortened, whole } from "../../parts/format";
import { NodeName } from "../../parts/node_name";
import { Table } from "../../parts/table";
import { urlWith } from "../../state/url";
import { STALE_AFTER_MS } from "../../state/live";
import { pairName } from "./pair_name";

interface Props { pairs: SelectorPair[]; chosen: SelectorPair | null }

const isSame = (pair: SelectorPair, chosen: SelectorPair | null): boolean => chosen !== null && pairName(pair) === pairName(chosen);

export function Matrix({ pairs, chosen }: Props) {
  const nodes = [...new Set(pairs.map((pair) => pair.node))].sort((a, b) => a - b);
  const clients = [...new Map(pairs.map((pair) => [pair.client, pair])).values()].sort((a, b) => a.client_name.localeCompare(b.client_name));
  // names are what clients say they are: two may say the same
  const isShared = (client: SelectorPair) => clients.some((other) => other.client !== client.client && other.client_name === client.client_name);
  return (
    <div class="table-scroll">
      <table class="matrix">
        <caption class="unseen">Share of one-sided searches by client and server</caption>
        <thead>
          <tr>
            <th scope="col">client</th>
            {nodes.map((node) => <th key={node} scope="col"><NodeName node={node} /></th>)}
          </tr>
        </thead>
        <tbody>
          {clients.map((client) => (
            <tr key={client.client}>
              <th scope="row">{shortened(client.client_name, 28)} {isShared(client) && <span class="quiet">…{client.client.slice(-4)} </span>}<span class="tag">{client.transport}</span> <span class="tag">{client.policy}</span></th>
              {nodes.map((node) => {
                const pair = pairs.find((one) => one.client === client.client && one.node === node);
                return <td key={node}>{pair ? <Cell pair={pair} isChosen={isSame(pair, chosen)} /> : <span class="quiet">none</span>}</td>;
              })}
            </tr>
          ))}
        </tbody>
      </table>
      <p class="legend share-key"><span class="share-scale" aria-hidden="true" /> from 0 %, the server does all, to 100 %, the client does all</p>
    </div>
  );
}

function Cell({ pair, isChosen }: { pair: SelectorPair; isChosen: boolean }) {
  const part = pair.one_sided_share;
  const isSilent = pair.age_ms > STALE_AFTER_MS;
  return (
    <a
      class={`matrix-cell${isChosen ? " is-chosen" : ""}${isSilent ? " is-silent" : ""}`} href={urlWith({ pair: pairName(pair) })} aria-current={isChosen ? "true" : undefined}
      style={{ "--part": `${(part ?? 0) * 100}%` }} title={pair.decision.sentence}
    >
      <b>{inWords(share(part))}</b> <span class="unit">{isSilent ? age(pair.age_ms) : inWords(perSecond(pair.searches_per_second))}</span>
    </a>
  );
}

/** What was counted in the last second: of a client that is silent that is over, and nobody knows what it does now. */
const lately = (pair: SelectorPair, value: number | null): number | null => (pair.age_ms > STALE_AFTER_MS ? null : value);

export function PairTable({ pairs, chosen }: Props) {
  return (
    <Table
      caption="Clients and servers" rows={pairs} rowKey={pairName} isChosen={(pair) => isSame(pair, chosen)}
      columns={[
        { name: "client", cell: (pair) => <a href={urlWith({ pair: pairName(pair) })}>{shortened(pair.client_name, 28)}</a> },
        { name: "server", cell: (pair) => `node ${pair.node}` },
        { name: "decision", cell: (pair) => pair.decision.sentence },
        { name: "one-sided", isNumber: true, cell: (pair) => <Figure value={share(lately(pair, pair.one_sided_share))} /> },
        { name: "searches", isNumber: true, cell: (pair) => <Figure value={perSecond(lately(pair, pair.searches_per_second))} /> },
        { name: "l_s", isNumber: true, cell: (pair) => <Figure value={nanoseconds(pair.l_s_ns)} /> },
        { name: "l_r", isNumber: true, cell: (pair) => <Figure value={nanoseconds(pair.l_r_ns)} /> },
        { name: "RTT", isNumber: true, cell: (pair) => <Figure value={nanoseconds(pair.rtt_ns)} /> },
        { name: "m", isNumber: true, cell: (pair) => digitsOf(pair.m) },
        { name: "cache hits", isNumber: true, cell: (pair) => <Figure value={share(lately(pair, pair.cache_hit_share))} /> },
        { name: "fallbacks", isNumber: true, cell: (pair) => <Figure value={perSecond(lately(pair, pair.fallbacks_per_second))} /> },
        { name: "in hand", isNumber: true, cell: (pair) => whole(lately(pair, pair.in_hand)) },
        { name: "policy", cell: (pair) => pair.policy },
        { name: "settings", isNumber: true, cell: (pair) => `revision ${pair.settings_revision}` },
        { name: "reported", cell: (pair) => age(pair.age_ms) },
      ]}
    />
  );
}
