import { stripVTControlCharacters, styleText } from 'node:util';
import { printable, printableStyled } from '../../lib/printable.ts';

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
export const columnGap = 2;

/** Text that fits into so many characters, one line without control characters. */
export function clip(text: string, width: number): string {
  const line = printable(text);
  return line.length <= width ? line : `${line.slice(0, Math.max(0, width - 1))}…`;
}

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

/** Takes the whole terminal for a view that changes; when it is disposed of, what was on it before is there again. */
export class Screen implements Disposable {
  readonly #output: NodeJS.WriteStream;
  readonly #stack = new DisposableStack();

  /** @param onEnd called when the user presses q or Ctrl-C, or ends the program */
  constructor(output: NodeJS.WriteStream, input: NodeJS.ReadStream, onEnd: () => void) {
    this.#output = output;
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      process.on(signal, onEnd);
      this.#stack.defer(() => process.off(signal, onEnd));
    }
    if (input.isTTY) {
      const onKey = (key: Buffer) => {
        if (['q', 'Q', ctrlC].includes(key.toString())) onEnd();
      };
      input.setRawMode(true).on('data', onKey);
      this.#stack.defer(() => void input.off('data', onKey).setRawMode(false).pause());
    }
    output.write(`${esc}[?1049h${esc}[?25l`);
    this.#stack.defer(() => output.write(`${esc}[?25h${esc}[?1049l`));
  }

  /** @param text lines that fit; nothing is left of the text before */
  show(text: string): void {
    const lines = printableStyled(text).trimEnd().split('\n');
    this.#output.write(`${esc}[H${lines.map((line) => `${line}${esc}[K`).join('\r\n')}${esc}[J`);
  }

  [Symbol.dispose](): void {
    this.#stack.dispose();
  }
}

// Source: ECMA-48, and xterm's private modes for its alternate screen and the cursor.
const esc = '\u001b';
const ctrlC = '\u0003';
