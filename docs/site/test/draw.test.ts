import { expect, it } from 'vitest';
import { drawRecording } from '../draw-recording.ts';

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
