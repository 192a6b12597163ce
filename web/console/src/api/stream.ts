// A stream of server-sent events. It is read by fetch, because EventSource cannot send a token.
// It connects again by itself, with the id of the last event that it has seen.

import { headersWithToken } from "./client";
import { problemOf, unreachable, type ApiProblem } from "./problem";
import { token } from "./token";

export interface StreamEvent { topic: string; id: string | null; data: unknown }

export interface StreamListener {
  onEvent(event: StreamEvent): void;
  /** Anything was received, also a comment that keeps the connection alive. */
  onSign(): void;
  onState(state: "connecting" | "open", problem: ApiProblem | null): void;
}

const RETRY_SHORTEST_MS = 1000;
const RETRY_LONGEST_MS = 8000;
/** A stream on which nothing comes for so long is given up. It has a line each second. */
const SILENCE_MAX_MS = 15000;

export class Stream {
  private topics: string[] = [];
  private attempt: AbortController | null = null;
  private retryMs = RETRY_SHORTEST_MS;
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** `lastId` is of the event after which it goes on. */
  constructor(private readonly listener: StreamListener, private lastId: string | null = null) {}

  /** Connects anew if other topics are wanted. */
  setTopics(topics: string[]): void {
    if (topics.join() === this.topics.join() && this.attempt) return;
    this.topics = topics;
    this.restart();
  }

  stop(): void {
    clearTimeout(this.timer);
    this.attempt?.abort();
    this.attempt = null;
  }

  restart(): void {
    this.stop();
    if (this.topics.length > 0) void this.connect();
  }

  private async connect(): Promise<void> {
    const attempt = new AbortController();
    this.attempt = attempt;
    this.listener.onState("connecting", null);
    let problem: ApiProblem | null = null;
    try {
      problem = await this.read(attempt);
    } catch {
      problem = unreachable("the stream ended");
    }
    if (this.attempt !== attempt) return; // another one has taken its place
    this.listener.onState("connecting", problem);
    if (problem?.isUnauthorised) return token.refused();
    this.timer = setTimeout(() => this.restart(), this.retryMs);
    this.retryMs = Math.min(this.retryMs * 2, RETRY_LONGEST_MS);
  }

  private async read(attempt: AbortController): Promise<ApiProblem | null> {
    const headers = headersWithToken({ accept: "text/event-stream" });
    if (this.lastId !== null) headers["last-event-id"] = this.lastId;
    const path = `/api/v1/stream?topics=${this.topics.join(",")}`;
    const unlessSilent = <T>(step: Promise<T>): Promise<T> => {
      const silence = setTimeout(() => attempt.abort(), SILENCE_MAX_MS);
      return step.finally(() => clearTimeout(silence));
    };
    const response = await unlessSilent(fetch(path, { headers, signal: attempt.signal, cache: "no-store" }));
    if (!response.ok || !response.body) return unlessSilent(problemOf(response));
    this.listener.onState("open", null);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const lines = new EventLines((event) => this.take(event));
    for (;;) {
      const { done, value } = await unlessSilent(reader.read());
      if (done) return unreachable("the stream ended");
      this.retryMs = RETRY_SHORTEST_MS;
      this.listener.onSign();
      lines.push(value);
    }
  }

  private take(event: StreamEvent): void {
    if (event.id !== null) this.lastId = event.id;
    this.listener.onEvent(event);
  }
}

/** The grammar of an event stream: fields, comments, an empty line ends an event. */
export class EventLines {
  private rest = "";
  private topic = "message";
  private id: string | null = null;
  /** The last id that was passed on. */
  private passed: string | null = null;
  private data: string[] = [];

  constructor(private readonly onEvent: (event: StreamEvent) => void) {}

  push(text: string): void {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    for (const line of lines) this.line(line);
  }

  private line(line: string): void {
    if (line === "") return this.end();
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.topic = value;
    else if (name === "id") this.id = value;
    else if (name === "data") this.data.push(value);
  }

  private end(): void {
    if (this.data.length === 0 && this.id !== this.passed) {
      // an id without data is no event, and is remembered; what comes after it has it too
      this.pass({ topic: "", id: this.id, data: null });
    } else if (this.data.length > 0) {
      try {
        this.pass({ topic: this.topic, id: this.id, data: JSON.parse(this.data.join("\n")) });
      } catch {
        // an event that is no JSON is left out; the next one is whole
      }
    }
    this.topic = "message";
    this.data = [];
  }

  private pass(event: StreamEvent): void {
    this.passed = event.id;
    this.onEvent(event);
  }
}
