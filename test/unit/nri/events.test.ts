import { describe, expect, it } from 'vitest';
import { eventMask, podEventName } from '../../../nri/events.ts';

describe('eventMask', () => {
  it.each([
    { handled: ['runPodSandbox'] as const, mask: 0b001 },
    { handled: ['stopPodSandbox'] as const, mask: 0b010 },
    { handled: ['removePodSandbox', 'runPodSandbox'] as const, mask: 0b101 },
    { handled: ['runPodSandbox', 'stopPodSandbox', 'removePodSandbox'] as const, mask: 0b111 },
    { handled: ['runPodSandbox', 'createContainer'] as const, mask: 0b1001 },
  ])('trap 11: $handled is $mask', ({ handled, mask }) => expect(eventMask(handled)).toBe(mask));

  it('trap 11: is never 0, which would ask for everything', () => expect(eventMask([])).toBe(0b100));
});

describe('podEventName', () => {
  it('knows the three and no other', () => {
    expect([0, 1, 2, 3, 4, 14, 99, -1].map(podEventName)).toEqual([
      undefined,
      'runPodSandbox',
      'stopPodSandbox',
      'removePodSandbox',
      ...[undefined, undefined, undefined, undefined],
    ]);
  });
});
