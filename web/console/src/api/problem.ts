// What went wrong with a request, in the words of the node (RFC 9457) or of the browser.

export interface FieldError {
  pointer: string; detail: string; min?: number | string | null; max?: number | string | null; unit?: string | null;
}

/** `status` is 0 when no answer came at all. */
export class ApiProblem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    readonly detail: string,
    readonly next: string | null,
    readonly requestId: string | null,
    readonly errors: FieldError[],
  ) {
    super(detail);
  }

  get isUnauthorised(): boolean {
    return this.status === 401;
  }
}

const text = (value: unknown): string | null => (typeof value === "string" && value !== "" ? value : null);

/** Reads problem+json; any other body is not shown. */
export async function problemOf(response: Response): Promise<ApiProblem> {
  let body: Record<string, unknown> = {};
  try {
    if (response.headers.get("content-type")?.includes("json")) body = (await response.json()) as typeof body;
  } catch {
    // a broken body says no more than the status does
  }
  return new ApiProblem(
    response.status,
    text(body.code) ?? `http_${response.status}`,
    text(body.detail) ?? text(body.title) ?? `The node answered ${response.status}.`,
    text(body.next),
    text(body.request_id) ?? response.headers.get("x-request-id"),
    Array.isArray(body.errors) ? (body.errors as FieldError[]) : [],
  );
}

export function unreachable(why: string): ApiProblem {
  const next = "See whether its process runs (cell status), or open the console of another node.";
  return new ApiProblem(0, "unreachable", `This node does not answer: ${why}.`, next, null, []);
}

/** An answer came, but not one that can be read. */
export function broken(why: string): ApiProblem {
  return new ApiProblem(0, "broken_answer", `The answer cannot be read: ${why}.`, "If it stays so, look at what lies between this browser and the node.", null, []);
}
