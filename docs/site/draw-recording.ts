import { pictureStyle } from './diagram.ts';

/** What a line of a terminal shows from a moment on. */
export interface LineChange {
  row: number;
  text: string;
  seconds: number;
}

const line = { height: 18, width: 7.9 };
const longestPause = 1.5;
const rowsOfWindow = 30;

/**
 * A terminal of 30 lines as an SVG picture: each text appears when it did, and longer pauses take 1.5 s. It plays once. Who has
 * asked for less motion sees the last state.
 */
export function drawRecording(changes: LineChange[]): string {
  const times = shortenPauses(changes.map(({ seconds }) => seconds));
  const rows = Map.groupBy(
    changes.map((change, index) => ({ ...change, seconds: times[index]! })),
    ({ row }) => row,
  );
  const texts = [...rows].flatMap(([row, states]) =>
    states.map(({ text, seconds }, index) => {
      const until = states[index + 1]?.seconds;
      // A later text is hidden up to its time; an earlier one is shown during its time only.
      const style =
        until === undefined
          ? `animation:hidden ${seconds}s`
          : `visibility:hidden;animation:shown ${(until - seconds).toFixed(2)}s ${seconds}s`;
      return text === '' ? '' : `<text x="16" y="${row * line.height + 28}" style="${style}">${escaped(text)}</text>`;
    }),
  );
  const width = Math.ceil(Math.max(...changes.map(({ text }) => text.length)) * line.width) + 32;
  const height = rowsOfWindow * line.height + 28;
  const length = times.at(-1) ?? 0;
  // The window follows the last line, in jumps.
  let up = 0;
  const jumps = new Map<string, number>();
  for (const [index, { row, text }] of changes.entries()) {
    const needed = (row + 1 - rowsOfWindow) * line.height;
    if (text === '' || needed <= up) continue;
    up = needed;
    jumps.set(((100 * times[index]!) / length).toFixed(1), up);
  }
  const frames = [...jumps].map(([percent, pixels]) => `${percent}% { transform: translateY(-${pixels}px) }`);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">
<style>${pictureStyle}
  text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: var(--fg); white-space: pre; }
  @keyframes hidden { from, to { visibility: hidden } }
  @keyframes shown { from, to { visibility: visible } }
  @keyframes up { from { transform: none } ${frames.join(' ')} }
  g { transform: translateY(-${up}px); animation: up ${length}s step-end }
  @media (prefers-reduced-motion: reduce) { g, text { animation: none !important } }
</style>
<rect width="100%" height="100%" fill="var(--surface)"/>
<g>
${texts.filter((each) => each !== '').join('\n')}
</g>
</svg>
`;
}

/** @param times in their order */
function shortenPauses(times: number[]): number[] {
  let previous = 0;
  let shortened = 0;
  return times.map((time) => {
    shortened += Math.min(time - previous, longestPause);
    previous = time;
    return Math.round(shortened * 100) / 100;
  });
}

const escaped = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;');
