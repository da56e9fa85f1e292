import { expect, it } from 'vitest';
import { isPodWanted, KubeError } from '../../../../src/framework/kube/index.ts';

const pod = { namespace: 'apps', name: 'web-0', uid: 'pod-uid' };
const signal = new AbortController().signal;
const isWanted = (answer: object | Error) =>
  isPodWanted(
    { request: async () => (answer instanceof Error ? Promise.reject(answer) : (answer as never)) },
    pod,
    signal,
  );

it.each<[string, boolean, object | Error]>([
  ['runs', true, { metadata: { uid: 'pod-uid' }, status: { phase: 'Running' } }],
  ['is being deleted', false, { metadata: { uid: 'pod-uid', deletionTimestamp: '2026-03-01T12:00:00Z' } }],
  ['was evicted', false, { metadata: { uid: 'pod-uid' }, status: { phase: 'Failed' } }],
  ['has succeeded', false, { metadata: { uid: 'pod-uid' }, status: { phase: 'Succeeded' } }],
  ['was replaced by another pod of the same name', false, { metadata: { uid: 'next' } }],
  ['does not exist', false, new KubeError('api-not-found', 'pods "web-0" not found')],
])('isPodWanted for a pod that %s: %s', async (_what, expected, answer) => {
  expect(await isWanted(answer)).toBe(expected);
});

it('isPodWanted returns unknown if the API server does not answer', async () => {
  await expect(isWanted(new KubeError('api-timeout', 'no answer'))).rejects.toThrow('no answer');
});
