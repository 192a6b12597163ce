// Text in which words between backticks are code.

export function Marked({ text }: { text: string }) {
  return <>{text.split("`").map((piece, index) => (index % 2 === 1 ? <code key={index}>{piece}</code> : piece))}</>;
}
