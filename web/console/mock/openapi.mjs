// A part of the document that describes the API, as the console renders it.

const parameter = (name, where, description, schema = { type: "string" }, required = false) => ({ name, in: where, description, schema, required });
const nodes = {
  type: "object", required: ["nodes"],
  properties: { nodes: { type: "array", description: "A row for each node.", items: { $ref: "#/components/schemas/NodeRow" } } },
};
const row = {
  type: "object", required: ["node", "cpu_cores_used"],
  properties: {
    node: { type: "integer", description: "Its number." },
    cpu_cores_used: { type: ["number", "null"], description: "Processors that it keeps busy." },
    key: { anyOf: [{ $ref: "#/components/schemas/Key" }, { type: "null" }] },
  },
};
const ok = { 200: { description: "The document." }, default: { description: "A problem (RFC 9457)." } };

export const openapi = {
  openapi: "3.1.0",
  info: { title: "Cell admin API", version: "1", description: "What a node tells, and what can be changed." },
  paths: {
    "/api/v1/cluster/status": { get: { tags: ["cluster"], summary: "How the cluster is.", operationId: "clusterStatus", responses: ok } },
    "/api/v1/nodes": { get: { tags: ["cluster"], summary: "All nodes.", responses: { ...ok, 200: { ...ok[200], content: { "application/json": { schema: nodes } } } } } },
    "/api/v1/events": {
      get: {
        tags: ["cluster"], summary: "What happened, newest first.", responses: ok,
        parameters: [parameter("after", "query", "Only those after this id."), parameter("kind", "query", "Only of this kind."), parameter("limit", "query", "At most so many.", { type: "integer", minimum: 1, maximum: 200, default: 100 })],
      },
    },
    "/api/v1/tree/meganodes/{id}": { get: { tags: ["tree"], summary: "One meganode.", parameters: [parameter("id", "path", "PAIR.SLOT", { type: "string" }, true)], responses: ok } },
    "/api/v1/tuning": {
      get: { tags: ["tuning"], summary: "All settings.", responses: ok },
      patch: {
        tags: ["tuning"], summary: "Changes settings, all or none.", responses: ok,
        parameters: [parameter("If-Match", "header", "The revision that was read.", { type: "string" }, true), parameter("dry_run", "query", "1: check only.", { type: "integer", enum: [0, 1] })],
        requestBody: { required: true, content: { "application/merge-patch+json": { schema: { type: "object" } } } },
      },
    },
    "/api/v1/kv/{key}": { get: { tags: ["data"], summary: "One entry.", parameters: [parameter("key", "path", "The key's bytes in hexadecimal.", { type: "string" }, true)], responses: ok } },
  },
  components: { schemas: { NodeRow: row, Key: { type: "object", properties: { hex: { type: "string", description: "The bytes." } } } } },
};
