// A node's name with its colour, which is the same on all pages.

export const nodeColour = (node: number | null): string => (node === null ? "var(--muted)" : `var(--node-${node % 6})`);

export function NodeName({ node }: { node: number }) {
  return <span class="node-name"><span class="node-chip" style={{ background: nodeColour(node) }} />node {node}</span>;
}
