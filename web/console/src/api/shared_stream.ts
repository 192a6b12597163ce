// One stream for all tabs of this origin that can be seen, because a browser has few connections to a node. The tab
// that holds a Web Lock reads the stream, with the topics of all, and passes on by a channel what comes. When it is
// hidden or closed, the next one takes its place. Tabs with other tokens have a stream of their own.
//
// Web Locks are there only on https and on localhost. Elsewhere each tab that can be seen has its own stream.

import { visible } from "../state/visible";
import { ApiProblem } from "./problem";
import { Stream, type StreamEvent, type StreamListener } from "./stream";
import { token } from "./token";

/** How often a tab says what it wants, and how long that holds. */
const WANTS_EVERY_MS = 2000;
const WANTS_HOLD_MS = 5000;

type Message =
  | { kind: "wants"; tab: string; topics: string[] }
  /** A new reader asks what is wanted. */
  | { kind: "reader" }
  | { kind: "sign" }
  | { kind: "event"; event: StreamEvent }
  | { kind: "state"; state: "connecting" | "open"; problem: ApiProblem | null };

/** An error does not pass through a channel whole: its members are named. */
const plain = (problem: ApiProblem | null) => problem && { ...problem };
const revived = (one: ApiProblem | null) => one && new ApiProblem(one.status, one.code, one.detail, one.next, one.requestId, one.errors);

export class SharedStream {
  private readonly tab = Math.random().toString(36);
  private topics: string[] = [];
  private lastId: string | null = null;
  /** From when this tab takes part until it is hidden or has another token. */
  private session: AbortController | null = null;
  private channel: BroadcastChannel | null = null;
  /** Of the tab that reads. */
  private stream: Stream | null = null;
  private readonly others = new Map<string, { topics: string[]; until: number }>();

  constructor(private readonly listener: StreamListener) {
    visible.subscribe(() => this.restart());
  }

  setTopics(topics: string[]): void {
    this.topics = topics;
    if (!this.session) return this.restart();
    this.sayWants();
    this.update();
  }

  restart(): void {
    this.session?.abort();
    this.session = null;
    if (visible.get() && this.topics.length > 0) this.join();
  }

  private join(): void {
    const session = new AbortController();
    this.session = session;
    if (!navigator.locks || typeof BroadcastChannel === "undefined") return this.read(session.signal);
    const name = `cell.stream ${token.get() ?? ""}`;
    const channel = new BroadcastChannel(name);
    this.channel = channel;
    channel.onmessage = (message: MessageEvent<Message>) => this.take(message.data);
    const timer = setInterval(() => { this.sayWants(); this.update(); }, WANTS_EVERY_MS);
    session.signal.addEventListener("abort", () => {
      clearInterval(timer);
      channel.close();
      this.channel = null;
    });
    this.sayWants();
    const untilAborted = () => new Promise<void>((resolve) => {
      if (session.signal.aborted) return resolve();
      session.signal.addEventListener("abort", () => resolve());
      this.read(session.signal);
    });
    navigator.locks.request(name, { signal: session.signal }, untilAborted).catch(() => {}); // left before its turn came
  }

  /** This tab reads from now on. */
  private read(signal: AbortSignal): void {
    const stream = new Stream({
      onEvent: (event) => { this.post({ kind: "event", event }); this.hear(event); },
      onSign: () => { this.post({ kind: "sign" }); this.listener.onSign(); },
      onState: (state, problem) => { this.post({ kind: "state", state, problem: plain(problem) as ApiProblem | null }); this.listener.onState(state, problem); },
    }, this.lastId);
    this.stream = stream;
    signal.addEventListener("abort", () => {
      stream.stop();
      this.stream = null;
    });
    this.post({ kind: "reader" });
    this.update();
  }

  private take(message: Message): void {
    if (message.kind === "wants") {
      this.others.set(message.tab, { topics: message.topics, until: Date.now() + WANTS_HOLD_MS });
      this.update();
    } else if (message.kind === "reader") this.sayWants();
    else if (message.kind === "sign") this.listener.onSign();
    else if (message.kind === "event") this.hear(message.event);
    else {
      if (message.problem?.status === 401) token.refused();
      this.listener.onState(message.state, revived(message.problem));
    }
  }

  private hear(event: StreamEvent): void {
    if (event.id !== null) this.lastId = event.id;
    this.listener.onEvent(event);
  }

  /** The reader asks for what all tabs want that were received lately. */
  private update(): void {
    for (const [tab, { until }] of this.others) if (until < Date.now()) this.others.delete(tab);
    const all = [...this.topics, ...[...this.others.values()].flatMap((other) => other.topics)];
    this.stream?.setTopics([...new Set(all)].sort());
  }

  private sayWants(): void {
    this.post({ kind: "wants", tab: this.tab, topics: this.topics });
  }

  private post(message: Message): void {
    this.channel?.postMessage(message);
  }
}
