// What this caller may do here, and if something not, why.

import type { Role, WhoAmI } from "../api/types";
import { useTopic } from "./live";
import { useResource } from "./resource";

/** Why a change that needs this role would be refused; null: it is permitted as far as is known. */
export function useWhyNot(needed: Role): string | null {
  const who = useResource<WhoAmI>("whoami").data;
  const status = useTopic("status").data;
  if (status?.read_only) return "This node takes no changes over HTTP (http_read_only). Ask another node, or change its setting.";
  if (who && !who.roles.includes(needed)) return `Your role is ${who.role}: this needs the role ${needed}. You can read.`;
  return null;
}

/** Why keys and values are not shown; null: they are, as far as is known; undefined: that is being asked. */
export function useWhyNoKeys(): string | null | undefined {
  const { data, problem } = useResource<WhoAmI>("whoami");
  if (!data) return problem ? null : undefined;
  if (data.roles.includes("reader")) return null;
  return `Keys and values are for the role reader; your role is ${data.role}.`;
}
