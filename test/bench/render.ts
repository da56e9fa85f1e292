import type { Machine } from './machine.ts';
import type { BenchResult, Bound, Row, Unit } from './result.ts';

/** A Markdown table that is also readable on a terminal. */
export function renderTable(head: string[], rows: string[][]): string {
  const widths = head.map((title, column) =>
    Math.max(title.length, ...rows.map((cells) => (cells[column] ?? '').length)),
  );
  const line = (cells: string[]) =>
    `| ${cells.map((cell, column) => (column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0))).join(' | ')} |`;
  const rule = `|${widths.map((width, column) => (column === 0 ? '-'.repeat(width + 2) : `${'-'.repeat(width + 1)}:`)).join('|')}|`;
  return [line(head), rule, ...rows.map(line)].join('\n');
}

export function renderRows(rows: readonly Row[]): string {
  return renderTable(
    ['', 'median', 'p99', 'runs', 'reference', 'its median', 'its p99', 'ratio'],
    rows.map(({ what, unit, ours, reference, ratio }) => [
      what,
      formatValue(ours.median, unit),
      formatValue(ours.p99, unit),
      String(ours.runs),
      reference?.what ?? '',
      reference === undefined ? '' : formatValue(reference.median, unit),
      reference === undefined ? '' : formatValue(reference.p99, unit),
      ratio === undefined ? '' : `${ratio.toFixed(2)} ×`,
    ]),
  );
}

export function renderBounds(bounds: readonly Bound[]): string {
  return renderTable(
    ['must show', 'measured', 'at most', ''],
    bounds.map(({ what, value, limit, unit, met }) => [
      what,
      formatBound(value, unit),
      formatBound(limit, unit),
      met ? 'met' : 'NOT MET',
    ]),
  );
}

export function renderMachine({ processor, cores, memoryGb, kernel, system, node, disk, load }: Machine): string {
  const parts = [`${cores} cores of ${processor}`, `${memoryGb} GB`, system, `Linux ${kernel}`, `Node.js ${node}`];
  const state = disk === undefined ? '' : `state on ${disk}; `;
  return `${parts.join(', ')}; ${state}load before: ${load.toFixed(2)}`;
}

export function renderResult({ name, about, rows, tables = [], notes = [] }: BenchResult): string {
  const others = tables.map(({ head, lines }) => renderTable(head, lines));
  return [`## ${name}`, about, renderRows(rows), ...others, ...notes.map((note) => `- ${note}`)].join('\n\n');
}

function formatBound(value: number, unit: Bound['unit']): string {
  return unit === '×' ? `${value.toFixed(2)} ×` : formatValue(value, unit);
}

function formatValue(value: number, unit: Unit): string {
  if (unit === 'ms') return `${value.toFixed(value < 10 ? 3 : 1)} ms`;
  if (unit === 'MB') return `${value.toFixed(1)} MB`;
  return value.toFixed(0);
}
