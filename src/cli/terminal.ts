import { stripVTControlCharacters, styleText } from 'node:util';
import { printableStyled } from '../lib/printable.ts';

export type Style = 'bold' | 'green' | 'yellow' | 'red' | 'dim';

/** Output of a command. Escapes characters that a terminal would act upon. */
export interface Terminal {
  write(text: string): void;
  /** Returns the text in a style, or unchanged if the output has no colours. */
  style(style: Style, text: string): string;
}

/** Opens the output. Colours need a terminal and the absence of `NO_COLOR`. */
export function openTerminal(stream: NodeJS.WriteStream): Terminal {
  return {
    write: (text) => void stream.write(printableStyled(text)),
    style: (style, text) => styleText(style, text, { stream, validateStream: true }),
  };
}

/** Number of spaces between the columns of a table. */
const columnGap = 2;

/** Formats a table with a header. Columns are as wide as needed; empty cells show as `-`. */
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
