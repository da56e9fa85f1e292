import { expect, it } from 'vitest';
import { podEventName } from '../../../nri/events.ts';

it('podEventName returns the names of the three pod events, and of no other events', () => {
  expect([0, 1, 2, 3, 4, 14, 99, -1].map(podEventName)).toEqual([
    undefined,
    'runPodSandbox',
    'stopPodSandbox',
    'removePodSandbox',
    undefined,
    undefined,
    undefined,
    undefined,
  ]);
});
