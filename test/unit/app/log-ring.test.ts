import { describe, expect, it } from 'vitest';
import { LogRing } from '../../../src/app/log-ring.ts';

describe('LogRing', () => {
  it('keeps the newest lines, and drops a line whose beginning was overwritten', () => {
    const ring = new LogRing(64, 32);
    expect(ring.text()).toBe('');
    ring.write('first\n');
    expect(ring.text()).toBe('first\n');
    for (let line = 0; line < 100; line++) ring.write(`line ${line}\n`);
    expect(ring.text()).toBe([93, 94, 95, 96, 97, 98, 99].map((line) => `line ${line}\n`).join(''));
  });

  it('never exceeds its size, whatever the length of the lines, and always keeps the last line', () => {
    for (let length = 1; length <= 32; length++) {
      const ring = new LogRing(64, 32);
      for (let line = 0; line < 20; line++) {
        const text = `${String.fromCharCode(97 + line).repeat(length - 1)}\n`;
        ring.write(text);
        expect(ring.text().endsWith(text)).toBe(true);
        expect(Buffer.byteLength(ring.text())).toBeLessThanOrEqual(64);
        expect(
          new Set(
            ring
              .text()
              .split('\n')
              .slice(0, -1)
              .map((each) => each.length),
          ),
        ).toEqual(new Set([length - 1]));
      }
    }
  });

  it('truncates an overlong line at a character boundary, and keeps the lines before and after it', () => {
    for (const text of ['x'.repeat(5_000_000), 'é'.repeat(500), '𝄞'.repeat(500)]) {
      const ring = new LogRing(1_000, 100);
      for (const line of ['before\n', `${text}\n`, 'after\n']) ring.write(line);
      const [before, long = '', after] = ring.text().split('\n');
      expect([before, after]).toEqual(['before', 'after']);
      expect(long).toMatch(/…$/);
      expect(Buffer.byteLength(long)).toBeLessThanOrEqual(103);
    }
  });

  it('does not grow when the driver logs 300 claims of 224 KiB', () => {
    const ring = new LogRing();
    const before = process.memoryUsage();
    for (let claim = 0; claim < 300; claim++)
      ring.write(`${JSON.stringify({ claim, config: 'x'.repeat(224 * 1024) })}\n`);
    expect(ring.text().length).toBeLessThanOrEqual(1_000_000);
    expect(process.memoryUsage().arrayBuffers - before.arrayBuffers).toBeLessThan(8_000_000);
  });
});
