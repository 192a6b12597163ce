// Bytes of a key as text, as the node writes them: printable UTF-8 as it is, a backslash as `\\`, any other byte as
// `\xNN`. Bytes that differ are text that differs.

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

const escapedByte = (byte: number): string => `\\x${byte.toString(16).padStart(2, "0")}`;

/** How many bytes a letter has that begins with this one. */
const lengthOf = (first: number): number => (first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4);

export function textOfHex(hex: string): string {
  const bytes = Uint8Array.from(hex.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
  let text = "";
  for (let at = 0; at < bytes.length;) {
    const piece = bytes.subarray(at, at + lengthOf(bytes[at]!));
    const letter = letterOf(piece);
    if (letter === null) text += escapedByte(bytes[at]!);
    else if (letter === "\\") text += "\\\\";
    else text += /\p{Cc}/u.test(letter) ? Array.from(piece, escapedByte).join("") : letter;
    at += letter === null ? 1 : piece.length;
  }
  return text;
}

/** Null: these bytes are no letter. */
function letterOf(bytes: Uint8Array): string | null {
  try {
    return decoder.decode(bytes);
  } catch {
    return null;
  }
}
