// The parts of an OpenAPI document that are shown.

export interface Parameter { name: string; in: string; description?: string; required?: boolean; schema?: Record<string, unknown>; $ref?: string }

export interface OperationObject {
  summary?: string; description?: string; tags?: string[]; parameters?: Parameter[];
  requestBody?: { content?: Record<string, { schema?: unknown }>; description?: string };
  responses?: Record<string, { description?: string; content?: Record<string, { schema?: unknown }> }>;
}

type PathObject = { parameters?: Parameter[] } & Record<string, OperationObject>;

export interface OpenApi {
  openapi: string; info?: { title?: string; version?: string }; paths?: Record<string, PathObject>;
  components?: unknown; age_ms?: number; missing?: undefined;
}

export interface RouteObject { method: string; path: string; tag: string; operation: OperationObject; parameters: Parameter[] }

const METHODS = ["get", "put", "post", "patch", "delete"];

/** Follows `#/components/...`; what is not there stays as it is. */
export function resolved<T>(root: OpenApi, part: T & { $ref?: string }): T {
  if (!part.$ref?.startsWith("#/")) return part;
  const found = part.$ref.slice(2).split("/").reduce<unknown>((at, name) => (at as Record<string, unknown> | undefined)?.[name], root);
  return (found as T | undefined) ?? part;
}

const tagOf = (path: string, operation: OperationObject): string => operation.tags?.[0] ?? path.replace(/^\/api\/v1\//, "").split(/[/:{]/)[0] ?? "";

export function operationsOf(document: OpenApi): RouteObject[] {
  return Object.entries(document.paths ?? {}).flatMap(([path, object]) =>
    METHODS.flatMap((method) => {
      const operation = object[method];
      if (!operation) return [];
      const parameters = [...(object.parameters ?? []), ...(operation.parameters ?? [])].map((one) => resolved(document, one));
      return [{ method: method.toUpperCase(), path, tag: tagOf(path, operation), operation, parameters }];
    }));
}
