// One request to the node that served this page: token, time limit, ETag, errors.

import { ApiProblem, problemOf, unreachable } from "./problem";
import { token } from "./token";

const TIMEOUT_MS = 8000;

export interface Answer<T> { document: T; etag: string | null; receivedAt: number }

export interface AskOptions {
  method?: string; body?: unknown; contentType?: string; headers?: Record<string, string>; signal?: AbortSignal;
  timeoutMs?: number;
}

export function headersWithToken(more: Record<string, string> = {}): Record<string, string> {
  const secret = token.get();
  return secret ? { ...more, authorization: `Bearer ${secret}` } : more;
}

/** Sends a request below `/api/v1`, whatever its answer is. Fails if none comes. */
export async function send(path: string, options: AskOptions = {}): Promise<Response> {
  const limit = new AbortController();
  const timer = setTimeout(() => limit.abort(), options.timeoutMs ?? TIMEOUT_MS);
  const abort = () => limit.abort();
  options.signal?.addEventListener("abort", abort);
  const headers: Record<string, string> = { accept: "application/json", ...options.headers };
  if (options.body !== undefined) headers["content-type"] = options.contentType ?? "application/json";
  try {
    return await fetch(path.startsWith("/") ? path : `/api/v1/${path}`, {
      method: options.method ?? "GET",
      headers: headersWithToken(headers),
      body: options.body === undefined ? undefined : JSON.stringify(options.body),
      signal: limit.signal,
    });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    const seconds = (options.timeoutMs ?? TIMEOUT_MS) / 1000;
    throw unreachable(limit.signal.aborted ? `nothing came within ${seconds} s` : "the connection failed");
  } finally {
    clearTimeout(timer);
    options.signal?.removeEventListener("abort", abort);
  }
}

/** Sends a request and reads its document. Errors are `ApiProblem`. */
export async function ask<T>(path: string, options: AskOptions = {}): Promise<Answer<T>> {
  const response = await send(path, options);
  if (!response.ok) {
    const problem = await problemOf(response);
    if (problem.isUnauthorised) token.refused();
    throw problem;
  }
  const document = (await response.json()) as T;
  return { document, etag: response.headers.get("etag"), receivedAt: Date.now() };
}

/** A key under which a POST is done at most once, also if it is sent again. */
export function idempotencyKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export const isProblem = (error: unknown): error is ApiProblem => error instanceof ApiProblem;
