// Whether this caller may change something here, and if not, why.

import type { WhoAmI } from "../api/types";
import { useTopic } from "./live";
import { useResource } from "./resource";

type Role = WhoAmI["role"];

const RANK: Record<Role, number> = { viewer: 0, operator: 1, admin: 2 };

/** Why what needs this role would be refused; null: it is permitted as far as is known. */
export function useWhyNot(needed: Role): string | null {
  const role = useResource<WhoAmI>("whoami").data?.role;
  const status = useTopic("status").data;
  if (status?.read_only) return "This node takes no changes over HTTP (http_read_only). Ask another node, or change its setting.";
  if (role !== undefined && RANK[role] < RANK[needed]) return `Your role is ${role}: this needs the role ${needed}. You can read.`;
  return null;
}
