// The switch between a picture and the same figures as a table. The address says which tables are shown.

import { useInList } from "../state/url";

export const slugOf = (title: string): string => title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");

export const useTwin = (name: string): [boolean, (isShown: boolean) => void] => useInList("tables", name);

export function TwinButton({ name, of }: { name: string; of: string }) {
  const [isShown, show] = useTwin(name);
  return (
    <button class="button button-quiet button-small" type="button" aria-pressed={isShown} onClick={() => show(!isShown)}>
      Table<span class="unseen"> of {of}</span>
    </button>
  );
}
