// The parts of an OpenAPI document that are shown.

export interface Parameter { name: string; in: string; description?: string; required?: boolean; schema?: Record<string, unknown>; $ref?: string }

/** A JSON Schema, of which these keywords are shown. */
export interface Schema {
  $ref?: string; type?: string | string[]; title?: string; description?: string; enum?: unknown[]; anyOf?: Schema[];
  properties?: Record<string, Schema>; required?: string[]; additionalProperties?: boolean | Schema;
  items?: boolean | Schema; prefixItems?: Schema[]; minimum?: number; maximum?: number;
}

type Content = Record<string, { schema?: Schema; example?: unknown }>;

export interface OperationObject {
  summary?: string; description?: string; tags?: string[]; parameters?: Parameter[];
  requestBody?: { content?: Content; description?: string };
  responses?: Record<string, { description?: string; content?: Content }>;
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
