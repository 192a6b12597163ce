// A document that is asked for, and again each so many milliseconds. What came last stays while a request fails.

import { useEffect, useRef, useState } from "preact/hooks";
import { asProblem, ask } from "../api/client";
import type { ApiProblem } from "../api/problem";
import { token } from "../api/token";
import { useNow } from "./clock";
import { STALE_AFTER_MS } from "./live";
import { useStore } from "./store";
import { visible } from "./visible";

export interface Resource<T> {
  data: T | null; etag: string | null; problem: ApiProblem | null; isLoading: boolean; ageMs: number;
  isStale: boolean;
  reload(): void;
}

interface Kept<T> { path: string; data: T | null; etag: string | null; problem: ApiProblem | null; receivedAt: number }

/** `path` null asks for nothing. `everyMs` 0 asks once. A tab that is hidden does not ask again. */
export function useResource<T extends { age_ms?: number }>(path: string | null, everyMs = 0): Resource<T> {
  const [kept, keep] = useState<Kept<T> | null>(null);
  const [round, setRound] = useState(0);
  const now = useNow();
  const isVisible = useStore(visible);
  const isAsking = everyMs === 0 || isVisible;
  const latest = useRef<Kept<T> | null>(null);
  latest.current = kept;

  useEffect(() => token.subscribe(() => setRound((count) => count + 1)), []);
  useEffect(() => {
    if (path === null || !isAsking) return;
    const leave = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const look = async () => {
      const before = latest.current?.path === path ? latest.current : null;
      try {
        const { document, etag, receivedAt } = await ask<T>(path, { signal: leave.signal });
        if (!leave.signal.aborted) keep({ path, data: document, etag, problem: null, receivedAt });
      } catch (error) {
        if (leave.signal.aborted) return;
        const { data = null, etag = null, receivedAt = 0 } = before ?? {};
        keep({ path, data, etag, problem: asProblem(error), receivedAt });
      } finally {
        if (everyMs > 0 && !leave.signal.aborted) timer = setTimeout(look, everyMs);
      }
    };
    void look();
    return () => {
      leave.abort();
      clearTimeout(timer);
    };
  }, [path, everyMs, round, isAsking]);

  const shown = kept?.path === path ? kept : null;
  const ageMs = shown?.data ? Math.max(0, now - shown.receivedAt) + (shown.data.age_ms ?? 0) : 0;
  return {
    data: shown?.data ?? null,
    etag: shown?.etag ?? null,
    problem: shown?.problem ?? null,
    isLoading: path !== null && shown === null,
    ageMs,
    isStale: everyMs > 0 && ageMs > Math.max(STALE_AFTER_MS, everyMs * 2 + 1000),
    reload: () => setRound((count) => count + 1),
  };
}

/** What was asked for last stays until the next answer has come: what shows it keeps its place and the focus. */
export function useShownUntilNext<T>(resource: Resource<T>): Resource<T> {
  const last = useRef<T | null>(null);
  if (resource.data) last.current = resource.data;
  else if (resource.problem) last.current = null;
  return { ...resource, data: resource.data ?? last.current };
}
