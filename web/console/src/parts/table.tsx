// A table: aligned numbers, a caption for those who hear it, its own scroll on narrow screens.

import type { ComponentChildren } from "preact";

export interface Column<T> {
  name: string;
  /** Stands in the heading, so that cells can be numbers alone. */
  unit?: string;
  isNumber?: boolean;
  cell(row: T): ComponentChildren;
  /** The heading is only heard: the column has buttons. */
  isUnnamed?: boolean;
  /** Left out on narrow screens. */
  isMinor?: boolean;
}

interface TableProps<T> {
  caption: string; columns: Column<T>[]; rows: T[]; rowKey(row: T): string | number;
  isChosen?(row: T): boolean; rowClass?(row: T): string; isCaptionShown?: boolean;
}

const classes = (...names: (string | false | undefined)[]): string => names.filter(Boolean).join(" ");

const keyOf = (column: { name: string; unit?: string }): string => `${column.name} ${column.unit ?? ""}`;

export function Table<T>({ caption, columns, rows, rowKey, isChosen, rowClass, isCaptionShown }: TableProps<T>) {
  return (
    <div class="table-scroll" tabIndex={0} role="group" aria-label={caption}>
      <table>
        <caption class={isCaptionShown ? "" : "unseen"}>{caption}</caption>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={keyOf(column)} scope="col" class={classes(column.isNumber && "number", column.isMinor && "minor")}>
                {column.isUnnamed ? <span class="unseen">{column.name}</span> : column.name}
                {column.unit && <span class="unit"> {column.unit}</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={rowKey(row)} class={classes(isChosen?.(row) && "is-chosen", rowClass?.(row))}>
              {columns.map((column, index) => {
                const cell = classes(column.isNumber && "number", column.isMinor && "minor");
                return index === 0
                  ? <th key={keyOf(column)} scope="row" class={cell}>{column.cell(row)}</th>
                  : <td key={keyOf(column)} class={cell}>{column.cell(row)}</td>;
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
