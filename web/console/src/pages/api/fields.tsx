// The fields of an answer or of a body, by their paths: `nodes[].memory.limit_bytes`.

import { Table } from "../../parts/table";
import { resolved, type OpenApi, type Schema } from "./openapi";

interface Field { path: string; takes: string; meaning: string; isOptional: boolean }

/** Schemas may name each other: deeper than this is not shown. */
const DEPTH_MAX = 8;

const of = (part: boolean | Schema | undefined): Schema | null => (typeof part === "object" ? part : null);

/** What a schema refers to, with its own meaning if it has one. */
function followed(root: OpenApi, schema: Schema): Schema {
  const target = resolved<Schema>(root, schema as Schema & { $ref?: string });
  return target === schema ? schema : { ...target, description: schema.description ?? target.description };
}

/** A schema without its `or null`. */
function split(root: OpenApi, schema: Schema): { main: Schema; isNull: boolean } {
  const whole = followed(root, schema);
  const others = whole.anyOf?.filter((one) => one.type !== "null");
  if (whole.anyOf && others?.length === 1) {
    const main = followed(root, others[0]!);
    return { main: { ...main, description: whole.description ?? main.description }, isNull: others.length < whole.anyOf.length };
  }
  return { main: whole, isNull: false };
}

function takes(root: OpenApi, schema: Schema): string {
  const { main, isNull } = split(root, schema);
  const types = main.anyOf ? main.anyOf.map((one) => takes(root, one)) : [main.type ?? "any"].flat().map((one) => (main.enum && one !== "null" ? main.enum.join(", ") : one));
  return [...types, ...(isNull ? ["null"] : [])].join(" or ");
}

function collect(root: OpenApi, schema: Schema, path: string, fields: Field[], depth: number): Field[] {
  const { main } = split(root, schema);
  if (depth > DEPTH_MAX) return fields;
  const inside = (part: Schema, at: string) => collect(root, part, at, fields, depth + 1);
  main.anyOf?.forEach((one) => inside(one, path));
  for (const [name, field] of Object.entries(main.properties ?? {})) {
    const at = path ? `${path}.${name}` : name;
    const isOptional = !main.required?.includes(name);
    fields.push({ path: at, takes: takes(root, field), meaning: split(root, field).main.description ?? "", isOptional });
    inside(field, at);
  }
  const each = of(main.additionalProperties);
  if (each) {
    fields.push({ path: `${path}.*`, takes: takes(root, each), meaning: split(root, each).main.description ?? "", isOptional: true });
    inside(each, `${path}.*`);
  }
  main.prefixItems?.forEach((one, at) => inside(one, `${path}[${at}]`));
  const item = of(main.items);
  if (item) inside(item, `${path}[]`);
  return fields;
}

export function Fields({ caption, schema, root }: { caption: string; schema: Schema | undefined; root: OpenApi }) {
  if (!schema) return null;
  const branches = schema.anyOf ?? [schema];
  return (
    <>
      {branches.map((branch, at) => {
        const all = collect(root, branch, "", [], 0);
        const fields = all.filter((one, first) => all.findIndex((other) => other.path === one.path) === first);
        if (fields.length === 0) return null;
        const title = branch.title ? `${caption}, ${branch.title}` : caption;
        return (
          <Table
            key={at} caption={title} rows={fields} rowKey={(one) => one.path} isCaptionShown
            columns={[
              { name: "field", cell: (one) => <><code>{one.path}</code>{one.isOptional && <span class="quiet"> optional</span>}</> },
              { name: "is", cell: (one) => one.takes },
              { name: "meaning", cell: (one) => <span class="event-text">{one.meaning}</span> },
            ]}
          />
        );
      })}
    </>
  );
}
