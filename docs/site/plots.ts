import { pictureStyle } from './diagram.ts';

interface Mark {
  series: string;
  value: number;
  /** The end of a line from the mark: the 99th percentile. */
  to: number | undefined;
}

/** A row for each thing that was measured, with marks on one axis. */
export interface Plot {
  title: string;
  rows: { label: string; marks: Mark[] }[];
  /** A line across all rows. */
  limit?: number;
}

const width = 760;
const area = { left: 360, right: 30 };
const markHeight = 14;
/** 0.001, 0.002, 0.005, 0.01 … */
const roundNumbers = Array.from(
  { length: 36 },
  (_, index) => 10 ** (Math.floor(index / 3) - 3) * [1, 2, 5][index % 3]!,
);

/** Every Markdown table with figures, followed by the link of a picture that `write` makes of its plots. */
export function addPlots(markdown: string, write: (plots: Plot[]) => string): string {
  return markdown.replaceAll(/^\|.*\|\n\|[-:| ]+\|\n(?:\|.*\|(?:\n|$))+/gm, (table) => {
    const [head = [], , ...rows] = table.trim().split('\n').map(cellsOf);
    const plots = plotsOf(head, rows);
    if (plots.length === 0) return table;
    return `${table}\n![The figures of the table, as a plot](${write(plots)})\n`;
  });
}

const cellsOf = (line: string) =>
  line
    .replaceAll(/^\| ?| ?\|$/g, '')
    .split('|')
    .map((cell) => cell.trim());

/** A figure with its unit, such as `2.619 ms`; `undefined` for any other text. */
function figureOf(cell = ''): { value: number; unit: string } | undefined {
  const [, digits, unit = ''] = /^([\d,]*\d(?:\.\d+)?)(?: (ms|MB|×))?$/.exec(cell) ?? [];
  return digits === undefined ? undefined : { value: Number(digits.replaceAll(',', '')), unit };
}

function plotsOf(head: string[], rows: string[][]): Plot[] {
  if (head[1] === 'median') return comparisons(rows);
  if (head[2] === 'at most') return [sharesOfLimits(rows)];
  const isFigures = (column: number) => {
    const cells = rows.map((cells) => cells[column] ?? '').filter((cell) => cell !== '');
    return column > 0 && cells.length > 0 && cells.every((cell) => figureOf(cell) !== undefined);
  };
  const columns = [...head.keys()];
  // A second column of names tells apart what is compared; what is not named again is as above.
  const isSeries = columns.length > 2 && !isFigures(1);
  const labels = rows.map(([first = ''], index) => first || rows.slice(0, index).findLast(([each]) => each)?.[0] || '');
  return columns.filter(isFigures).map((column) => ({
    title: head[column] ?? '',
    rows: [...Map.groupBy(rows.keys(), (index) => labels[index] ?? '')].map(([label, indexes]) => ({
      label,
      marks: indexes.flatMap((index) => {
        const figure = figureOf(rows[index]?.[column]);
        return figure === undefined
          ? []
          : [{ series: isSeries ? (rows[index]?.[1] ?? '') : '', value: figure.value, to: undefined }];
      }),
    })),
  }));
}

/** Medians beside those of a reference, with lines to the 99th percentiles: a plot for each unit. */
function comparisons(rows: string[][]): Plot[] {
  const units = Map.groupBy(rows, ([, median]) => figureOf(median)?.unit ?? '');
  return [...units].map(([unit, group]) => ({
    title: unit === '' ? 'median' : `median, ${unit}; the line ends at the 99th percentile`,
    rows: group.map(([label = '', median, p99, , reference = '', itsMedian, itsP99]) => ({
      label,
      marks: [markOf('netdra', median, p99), ...(reference === '' ? [] : [markOf(reference, itsMedian, itsP99)])],
    })),
  }));
}

function markOf(series: string, median: string | undefined, p99: string | undefined): Mark {
  return { series, value: figureOf(median)?.value ?? 0, to: figureOf(p99)?.value };
}

function sharesOfLimits(rows: string[][]): Plot {
  return {
    title: 'measured, as a multiple of the bound: left of the line it is met',
    limit: 1,
    rows: rows.map(([label = '', measured, limit]) => ({
      label,
      marks: [{ series: '', value: (figureOf(measured)?.value ?? 0) / (figureOf(limit)?.value ?? 1), to: undefined }],
    })),
  };
}

const colours = `
  svg { --s0: #0b62a4; --s1: #b3470c; --s2: #2f7d32; --s3: #7b4fa3; }
  @media (prefers-color-scheme: dark) { svg { --s0: #6cb6ff; --s1: #f0a05a; --s2: #7ccf7f; --s3: #c8a2ef; } }
  text { fill: var(--fg); font: 12px sans-serif; } .title { font-weight: bold; } .grid { stroke: var(--border); stroke-opacity: 0.4; }`;

/** The plots of one table, below each other, as an SVG picture. */
export function drawPlots(plots: Plot[]): string {
  const series = [
    ...new Set(plots.flatMap(({ rows }) => rows.flatMap(({ marks }) => marks.map((mark) => mark.series)))),
  ];
  const names = series.filter((name) => name !== '');
  let top = names.length * 18 + 8;
  const legend = names.map((name, index) => `${shape(index, 10, index * 18 + 12)}${text(22, index * 18 + 16, name)}`);
  const parts = plots.map((plot) => {
    const [content, height] = drawPlot(plot, series, top);
    top += height;
    return content;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${top}" width="${width}" height="${top}">
<style>${pictureStyle}${colours}</style>
<rect width="100%" height="100%" fill="var(--bg)"/>
${[...legend, ...parts].join('\n')}
</svg>
`;
}

/** @returns the drawing, and its height */
function drawPlot({ title, rows, limit }: Plot, series: string[], top: number): [string, number] {
  const values = rows
    .flatMap(({ marks }) => marks.flatMap(({ value, to }) => [value, to ?? value]))
    .concat(limit ?? []);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  // Figures of several sizes are far apart only on a logarithmic axis, which has no 0.
  const isLog = low > 0 && high / low > 15;
  const span = width - area.left - area.right;
  const place = (value: number) =>
    Math.round(area.left + span * (isLog ? Math.log(value / low) / Math.log(high / low) : value / (high || 1)));
  const ticks = roundNumbers.filter((tick) => tick >= low && tick <= high);
  if (!isLog) {
    const step = roundNumbers.find((each) => each * 5 >= high) ?? high;
    ticks.splice(0, ticks.length, ...[0, 1, 2, 3, 4, 5].map((each) => each * step).filter((tick) => tick <= high));
  }
  let y = top + 40;
  const drawn = rows.map(({ label, marks }) => {
    if (marks.length === 0) return '';
    const from = y;
    const shapes = marks.map(({ series: name, value, to }) => {
      const index = series.indexOf(name);
      y += markHeight;
      const line =
        to === undefined ? '' : `<path d="M${place(value)} ${y}H${place(to)}" stroke="var(--s${index % 4})"/>`;
      return line + shape(index, place(value), y);
    });
    y += 8;
    const middle = Math.round((from + y) / 2 + 7);
    return `${text(area.left - 14, middle, label.replaceAll(/`|\[|\]\([^)]*\)/g, ''), 'text-anchor="end"')}${shapes.join('')}`;
  });
  const grid = ticks.map((tick) => {
    const label = text(place(tick), top + 34, String(Number(tick.toPrecision(3))), 'text-anchor="middle"');
    return `<path class="grid" d="M${place(tick)} ${top + 40}V${y}"/>${label}`;
  });
  const bound =
    limit === undefined ? '' : `<path d="M${place(limit)} ${top + 40}V${y}" stroke="var(--s1)" stroke-width="2"/>`;
  return [[text(4, top + 14, title, 'class="title"'), ...grid, bound, ...drawn].join('\n'), y - top + 16];
}

/** Series differ in colour and in shape. */
function shape(index: number, x: number, y: number): string {
  const path = [`M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0`, 'M-4 -4h8v8h-8z', 'M0 -5l5 9h-10z', 'M0 -5l5 5l-5 5l-5 -5z'][
    index % 4
  ];
  return `<path transform="translate(${x} ${y})" d="${path}" fill="var(--s${index % 4})"/>`;
}

function text(x: number, y: number, content: string, attributes = ''): string {
  const escaped = content.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
  return `<text x="${x}" y="${y}" ${attributes}>${escaped}</text>`;
}
