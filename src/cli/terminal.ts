import { stripVTControlCharacters, styleText } from 'node:util';
import { printableStyled } from '../lib/printable.ts';

export type Style = 'bold' | 'green' | 'yellow' | 'red' | 'dim';

/** Where a command writes, and whether people read it. Characters that a terminal would act upon are escaped. */
export interface Terminal {
  write(text: string): void;
  /** The text in a colour, or unchanged where colours are not wanted. */
  style(style: Style, text: string): string;
}

/** Colours only on a terminal, and not with `NO_COLOR` in the environment. */
export function openTerminal(stream: NodeJS.WriteStream): Terminal {
  return {
    write: (text) => void stream.write(printableStyled(text)),
    style: (style, text) => styleText(style, text, { stream, validateStream: true }),
  };
}

/** Characters between the columns of a table. */
const columnGap = 2;

/** A table with a header and columns as wide as needed. Empty cells show as `-`. */
export function formatTable(terminal: Terminal, head: string[], rows: string[][]): string {
  const width = (text: string) => stripVTControlCharacters(text).length;
  const cells = [head, ...rows].map((row) => row.map((cell) => printableStyled(cell.replaceAll('\n', ' ')) || '-'));
  const widths = head.map((_, column) => Math.max(...cells.map((row) => width(row[column] ?? ''))));
  const lines = cells.map((row) =>
    row
      .map((cell, column) => cell + ' '.repeat((widths[column] ?? 0) - width(cell)))
      .join(' '.repeat(columnGap))
      .trimEnd(),
  );
  const [first = '', ...rest] = lines;
  return [terminal.style('bold', first), ...rest].map((line) => `${line}\n`).join('');
}
