import { describe, expect, it } from 'vitest';
import { resolveHookFailure } from '../../../src/sandbox/index.ts';

describe('resolveHookFailure', () => {
  it.each([
    // Versions that leak a refused sandbox: containerd issues 13355 and 13609.
    ['containerd', 'v2.0.0', 'gate'],
    ['containerd', '2.1.9~ds1', 'gate'],
    ['containerd', 'v2.2.5', 'gate'],
    ['containerd', '2.3.2', 'gate'],
    ['containerd', 'v2.2.6', 'reject'],
    ['containerd', 'v2.3.3', 'reject'],
    ['containerd', 'v2.4.0', 'reject'],
    ['containerd', '1.7.24~ds1', 'reject'],
    ['cri-o', '1.34.0', 'reject'],
    ['containerd', '2.2.0-rc.1', 'gate'],
    ['containerd', '2.3.0', 'gate'],
    ['containerd', '2.10.0', 'reject'],
    // May be any of them.
    ['containerd', 'unknown', 'gate'],
  ])('chooses by itself for %s %s: %s', (name, version, expected) => {
    expect(resolveHookFailure('auto', { name, version })).toBe(expected);
  });

  it('does as it is told', () => {
    expect(resolveHookFailure('reject', { name: 'containerd', version: 'v2.1.9' })).toBe('reject');
    expect(resolveHookFailure('gate', { name: 'cri-o', version: '1.34.0' })).toBe('gate');
  });
});
