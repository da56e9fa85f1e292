import { describe, expect, it } from 'vitest';
import { drawRecording } from '../draw-recording.ts';
import { addPlots, drawPlots, type Plot } from '../plots.ts';

/** The plots of a page, and the page. */
function plotsOf(markdown: string): { page: string; tables: Plot[][] } {
  const tables: Plot[][] = [];
  const page = addPlots(markdown, (plots) => `plot-${tables.push(plots)}.svg`);
  return { page, tables };
}

describe('addPlots', () => {
  it('draws medians beside those of the reference, one plot per unit', () => {
    const { page, tables } = plotsOf(`Text.

|         |   median |      p99 | runs | reference | its median |  its p99 |  ratio |
|---------|---------:|---------:|-----:|----------:|-----------:|---------:|-------:|
| prepare | 2.619 ms | 6.998 ms |   80 |        Go |   1.303 ms | 2.578 ms | 2.01 × |
| memory  |  91.0 MB |  91.0 MB |    1 |           |            |          |        |
`);
    expect(page).toMatch(/^Text\.\n\n\|[\s\S]*\|\n\n!\[[^\]]+\]\(plot-1\.svg\)\n$/);
    expect(tables[0]?.map(({ rows }) => rows)).toEqual([
      [
        {
          label: 'prepare',
          marks: [
            { series: 'netdra', value: 2.619, to: 6.998 },
            { series: 'Go', value: 1.303, to: 2.578 },
          ],
        },
      ],
      [{ label: 'memory', marks: [{ series: 'netdra', value: 91, to: 91 }] }],
    ]);
  });

  it('draws a second column as the reference, and skips missing measurements', () => {
    const { tables } = plotsOf(`| 1,000 nodes | publisher | s | kB |
|---|---|--:|--:|
| start | netdra | | 1,257 |
| | Go | 2 | 3 |
`);
    expect(
      tables[0]?.map(({ title, rows }) => [title, rows[0]?.marks.map(({ series, value }) => [series, value])]),
    ).toEqual([
      ['s', [['Go', 2]]],
      [
        'kB',
        [
          ['netdra', 1257],
          ['Go', 3],
        ],
      ],
    ]);
  });

  it('draws no plot for a table of words', () => {
    const table = '| a | b |\n|---|---|\n| c | 5 min |\n';
    expect(plotsOf(table)).toEqual({ page: table, tables: [] });
  });
});

it('draws a mark at its value, on a logarithmic axis if values differ widely', () => {
  const plot = (values: number[]) =>
    drawPlots([
      {
        title: 'a < b',
        rows: values.map((value) => ({ label: `${value}`, marks: [{ series: '', value, to: undefined }] })),
      },
    ]);
  const places = (svg: string) => [...svg.matchAll(/translate\((\d+) /g)].map(([, x]) => Number(x));
  expect(places(plot([1, 10, 100]))).toEqual([360, 545, 730]);
  expect(places(plot([0, 50, 100]))).toEqual([360, 545, 730]);
  expect(plot([1])).toContain('a &lt; b');
});

it('shows each text of a recording at its time, and shortens pauses', () => {
  const svg = drawRecording([
    { row: 0, text: '$ demo', seconds: 0.5 },
    { row: 1, text: 'starting ...', seconds: 1 },
    { row: 1, text: 'starting ... done', seconds: 61 },
    { row: 31, text: 'end', seconds: 62 },
  ]);
  // Two lines of 18 pixels are above the window at the end.
  expect(svg).toContain('from { transform: none } 100.0% { transform: translateY(-36px) }');
  const texts = [...svg.matchAll(/<text x="16" y="(\d+)" style="([^"]*)">(.*)<\/text>/g)].map(([, y, style, text]) => [
    y,
    style,
    text,
  ]);
  expect(texts).toEqual([
    ['28', 'animation:hidden 0.5s', '$ demo'],
    ['46', 'visibility:hidden;animation:shown 1.50s 1s', 'starting ...'],
    ['46', 'animation:hidden 2.5s', 'starting ... done'],
    ['586', 'animation:hidden 3.5s', 'end'],
  ]);
});
