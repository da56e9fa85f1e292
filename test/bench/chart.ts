import type { Plot, Series } from './result.ts';

const size = { width: 640, height: 320 };
const area = { left: 64, right: 190, top: 40, bottom: 44 };
/** Series are distinguished by colour and by the shape of the points. */
const colours = ['#0b62a4', '#c2410c', '#2f7d32', '#7b4fa3', '#8a6d00', '#555555'];
const tickCount = 5;

/** The same on a dark page. */
const dark = {
  ...{ '#ffffff': '#1b1b1f', '#dddddd': '#45454d' },
  ...{ '#0b62a4': '#6cb6ff', '#c2410c': '#f0a05a', '#2f7d32': '#7ccf7f' },
  ...{ '#7b4fa3': '#c8a2ef', '#8a6d00': '#d8bc4a', '#555555': '#b4b4bd' },
};
const chartStyle = `<style>@media (prefers-color-scheme: dark) { text { fill: #e6e6e9 } ${Object.entries(dark)
  .map(([light, colour]) => `[fill="${light}"] { fill: ${colour} } [stroke="${light}"] { stroke: ${colour} }`)
  .join(' ')} }</style>`;

/** Draws lines with a point for each measurement, both axes from 0. @returns an SVG document */
export function drawChart({ title, xLabel, yLabel, series }: Plot): string {
  const all = series.flatMap(({ points }) => points);
  const xMax = Math.max(...all.map(([x]) => x));
  const yMax = roundUp(Math.max(...all.map(([, y]) => y)));
  const place = {
    x: (value: number) => area.left + (value / xMax) * (size.width - area.left - area.right),
    y: (value: number) => size.height - area.bottom - (value / yMax) * (size.height - area.top - area.bottom),
  };
  const xTicks = [...new Set(all.map(([x]) => x))].sort((a, b) => a - b).filter(isApart(xMax / 12));
  const yTicks = Array.from({ length: tickCount + 1 }, (_, tick) => (yMax * tick) / tickCount);
  return `${[
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${size.width} ${size.height}" font-family="sans-serif" font-size="12">`,
    chartStyle,
    `<rect width="${size.width}" height="${size.height}" fill="#ffffff"/>`,
    text(area.left, 22, title, 'font-size="14" font-weight="bold"'),
    ...yTicks.map((value) => gridLine(place.y(value))),
    ...yTicks.map((value) => text(area.left - 8, place.y(value) + 4, formatTick(value), 'text-anchor="end"')),
    ...xTicks.map((value) =>
      text(place.x(value), size.height - area.bottom + 18, String(value), 'text-anchor="middle"'),
    ),
    text((area.left + size.width - area.right) / 2, size.height - 8, xLabel, 'text-anchor="middle"'),
    text(area.left - 8, area.top - 6, yLabel, 'text-anchor="end"'),
    ...series.flatMap((each, index) => drawSeries(each, index, place)),
    '</svg>',
  ].join('\n')}\n`;
}

function drawSeries(
  { name, points }: Series,
  index: number,
  place: Record<'x' | 'y', (value: number) => number>,
): string[] {
  const colour = colours[index % colours.length] as string;
  const placed = points.map(([x, y]): [number, number] => [place.x(x), place.y(y)]);
  const dash = name.startsWith('reference') ? ' stroke-dasharray="5 4"' : '';
  const line = placed.map(([x, y]) => `${round(x)},${round(y)}`).join(' ');
  const legendY = area.top + 10 + index * 20;
  const legendX = size.width - area.right + 14;
  return [
    `<polyline points="${line}" fill="none" stroke="${colour}" stroke-width="2"${dash}/>`,
    ...placed.map(([x, y]) => `<circle cx="${round(x)}" cy="${round(y)}" r="3" fill="${colour}"/>`),
    `<line x1="${legendX}" y1="${legendY}" x2="${legendX + 20}" y2="${legendY}" stroke="${colour}" stroke-width="2"${dash}/>`,
    text(legendX + 26, legendY + 4, name),
  ];
}

function gridLine(y: number): string {
  return `<line x1="${area.left}" y1="${round(y)}" x2="${size.width - area.right}" y2="${round(y)}" stroke="#dddddd"/>`;
}

function text(x: number, y: number, content: string, attributes = ''): string {
  const escaped = content.replace(/&/g, '&amp;').replace(/</g, '&lt;');
  return `<text x="${round(x)}" y="${round(y)}"${attributes === '' ? '' : ` ${attributes}`}>${escaped}</text>`;
}

/** 1, 2, 2.5 or 5 times a power of ten. */
function roundUp(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value || 1));
  return ([1, 2, 2.5, 5, 10].find((step) => step * power >= value) as number) * power;
}

/** Keeps ticks whose numbers do not overlap. */
function isApart(distance: number): (value: number) => boolean {
  let last = Number.NEGATIVE_INFINITY;
  return (value) => {
    if (value - last < distance) return false;
    last = value;
    return true;
  };
}

function formatTick(value: number): string {
  return String(Number(value.toPrecision(3)));
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
