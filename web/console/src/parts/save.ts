// What is shown, as a file.

export const jsonLines = (rows: unknown[]): string => rows.map((row) => `${JSON.stringify(row)}\n`).join("");

export function save(name: string, type: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
