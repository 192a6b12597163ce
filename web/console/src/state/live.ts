// The topics of the stream: the newest document of each, and when it came. A topic is asked for while a
// component follows it.

import { useEffect } from "preact/hooks";
import type { EventRow, EventsDocument, RecoveriesDocument, SelectorDocument, Status, TuningDocument } from "../api/types";
import type { ApiProblem } from "../api/problem";
import { SharedStream } from "../api/shared_stream";
import { token } from "../api/token";
import { useNow } from "./clock";
import { createStore, useStore, type Store } from "./store";
import { visible } from "./visible";

export interface Topics {
  status: Status; selector: SelectorDocument; recoveries: RecoveriesDocument; events: EventsDocument;
  tuning: TuningDocument;
}

export type Topic = keyof Topics;

export interface Received<T> { document: T; receivedAt: number }

/** Figures are greyed when the stream is silent for longer. */
export const STALE_AFTER_MS = 5000;
const EVENTS_KEPT = 500;

/** `listensSince`: a hidden tab does not listen, and shows no silence when it is shown again. */
export interface Connection { isOpen: boolean; heardAt: number | null; listensSince: number; problem: ApiProblem | null }

export const connection = createStore<Connection>({ isOpen: false, heardAt: null, listensSince: Date.now(), problem: null });

visible.subscribe(() => connection.set({ ...connection.get(), isOpen: false, listensSince: Date.now() }));

const stores: { [T in Topic]: Store<Received<Topics[T]> | null> } = {
  status: createStore<Received<Status> | null>(null),
  selector: createStore<Received<SelectorDocument> | null>(null),
  recoveries: createStore<Received<RecoveriesDocument> | null>(null),
  events: createStore<Received<EventsDocument> | null>(null),
  tuning: createStore<Received<TuningDocument> | null>(null),
};

/** Events that came while this tab was open, newest first. */
export const arrivedEvents = createStore<EventRow[]>([]);

const followers: Record<Topic, number> = { status: 0, selector: 0, recoveries: 0, events: 0, tuning: 0 };

const isTopic = (name: string): name is Topic => name in stores;

function keepEvents(document: EventsDocument): void {
  const known = new Set(arrivedEvents.get().map((event) => event.id));
  const fresh = document.events.filter((event) => !known.has(event.id));
  if (fresh.length === 0) return;
  const all = [...fresh, ...arrivedEvents.get()].sort((a, b) => b.at_unix_ms - a.at_unix_ms);
  arrivedEvents.set(all.slice(0, EVENTS_KEPT));
}

const stream = new SharedStream({
  onEvent({ topic, data }) {
    if (!isTopic(topic)) return;
    (stores[topic] as Store<unknown>).set({ document: data, receivedAt: Date.now() });
    if (topic === "events") keepEvents(data as EventsDocument);
  },
  onSign: () => connection.set({ ...connection.get(), isOpen: true, heardAt: Date.now(), problem: null }),
  onState(state, problem) {
    const before = connection.get();
    connection.set({ ...before, isOpen: state === "open", problem: problem ?? (state === "open" ? null : before.problem) });
  },
});

token.subscribe(() => stream.restart());

let isPlanned = false;

/** Topics that change within one turn make one new connection. */
function plan(): void {
  if (isPlanned) return;
  isPlanned = true;
  queueMicrotask(() => {
    isPlanned = false;
    const wanted = (Object.keys(followers) as Topic[]).filter((topic) => followers[topic] > 0);
    if (wanted.length > 0) stream.setTopics(wanted);
  });
}

export interface Live<T> { data: T | null; ageMs: number; isStale: boolean; problem: ApiProblem | null }

/** Follows a topic. Its age counts from when it came, plus the age that it had then. */
export function useTopic<T extends Topic>(topic: T): Live<Topics[T]> {
  useEffect(() => {
    followers[topic] += 1;
    plan();
    return () => {
      followers[topic] -= 1;
      plan();
    };
  }, [topic]);
  const received = useStore(stores[topic] as Store<Received<Topics[T]> | null>);
  const { problem } = useStore(connection);
  const now = useNow();
  if (!received) return { data: null, ageMs: 0, isStale: false, problem };
  const ageMs = Math.max(0, now - received.receivedAt) + (received.document.age_ms ?? 0);
  return { data: received.document, ageMs, isStale: ageMs > STALE_AFTER_MS, problem };
}
