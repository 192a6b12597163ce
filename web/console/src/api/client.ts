// One request to the node that served this page: token, time limit, ETag, errors.

import { ApiProblem, broken, problemOf, unreachable } from "./problem";
import { token } from "./token";

const TIMEOUT_MS = 8000;
// a node waits for its coordinator up to three times, 4 s each, before it says what it knows of a change
const CHANGE_TIMEOUT_MS = 20_000;

export interface Answer<T> { document: T; etag: string | null; receivedAt: number }

export interface AskOptions {
  method?: string; body?: unknown; contentType?: string; headers?: Record<string, string>; signal?: AbortSignal;
  timeoutMs?: number;
}

export function headersWithToken(more: Record<string, string> = {}): Record<string, string> {
  const secret = token.get();
  return secret ? { ...more, authorization: `Bearer ${secret}` } : more;
}

/**
 * Sends a request below `/api/v1` and reads its answer, whatever the status is. The time limit holds until the body is
 * read. Errors are `ApiProblem`, except where the caller's own signal ends it.
 */
export async function exchange<T>(path: string, options: AskOptions, read: (response: Response) => Promise<T>): Promise<T> {
  const limit = new AbortController();
  const method = options.method ?? "GET";
  const timeoutMs = options.timeoutMs ?? (method === "GET" ? TIMEOUT_MS : CHANGE_TIMEOUT_MS);
  const timer = setTimeout(() => limit.abort(), timeoutMs);
  const abort = () => limit.abort();
  options.signal?.addEventListener("abort", abort);
  const headers: Record<string, string> = { accept: "application/json", ...options.headers };
  if (options.body !== undefined) headers["content-type"] = options.contentType ?? "application/json";
  let hasAnswered = false;
  try {
    const response = await fetch(path.startsWith("/") ? path : `/api/v1/${path}`, {
      method,
      headers: headersWithToken(headers),
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: limit.signal,
    });
    hasAnswered = true;
    return await read(response);
  } catch (error) {
    if (options.signal?.aborted || error instanceof ApiProblem) throw error;
    if (limit.signal.aborted) throw unreachable(hasAnswered ? `its answer did not end within ${timeoutMs / 1000} s` : `nothing came within ${timeoutMs / 1000} s`);
    throw hasAnswered ? broken(error instanceof SyntaxError ? "it is no JSON" : "it was cut") : unreachable("the connection failed");
  } finally {
    clearTimeout(timer);
    options.signal?.removeEventListener("abort", abort);
  }
}

/** Sends a request and reads its document. */
export function ask<T>(path: string, options: AskOptions = {}): Promise<Answer<T>> {
  const secret = token.get();
  return exchange(path, options, async (response) => {
    if (!response.ok) {
      const problem = await problemOf(response);
      if (problem.isUnauthorised && token.get() === secret) token.refused(); // another may have been entered since
      throw problem;
    }
    const document = (await response.json()) as T;
    return { document, etag: response.headers.get("etag"), receivedAt: Date.now() };
  });
}

/** A key under which a request is carried out at most once, also if it is sent again. */
export function idempotencyKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** What was caught, as a problem that can be shown. */
export const asProblem = (error: unknown): ApiProblem => (error instanceof ApiProblem ? error : broken(String(error)));

export const isProblem = (error: unknown): error is ApiProblem => error instanceof ApiProblem;
