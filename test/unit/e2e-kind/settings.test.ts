import { describe, expect, it } from 'vitest';
import { clusterTargetSchema, readTarget, targetVariable } from '../../../e2e/cluster/target.ts';
import { formatCall } from '../../../e2e/kind/commands.ts';
import { parseSettings, suiteCommand } from '../../../e2e/kind/settings.ts';
import { targetOf } from '../../../e2e/kind/suite.ts';
import { explain } from '../../../src/lib/errors.ts';

const env = { PATH: '/nowhere', NETDRA_CACHE: '/cache', KIND_EXPERIMENTAL_PROVIDER: 'podman' };
const parse = (argv: string[], more: NodeJS.ProcessEnv = {}) => parseSettings(argv, { ...env, ...more });
const reject = (argv: string[], more: NodeJS.ProcessEnv = {}) => {
  try {
    parse(argv, more);
  } catch (error) {
    return explain(error);
  }
  throw new Error('it was taken');
};

describe('the settings of npm run e2e:kind', () => {
  it('never take the cluster of KUBECONFIG without --existing', () => {
    const mine = { KUBECONFIG: '/mine' };
    expect(parse([], mine)).toMatchObject({ mode: 'kind', kubeconfig: '/cache/kind/netdra-e2e/kubeconfig' });
    const argv = ['--existing', '--no-install', '--consumer-image', 'c:1'];
    expect(parse(argv, mine)).toMatchObject({ mode: 'existing', kubeconfig: '/mine' });
  });

  it('refuse an engine of the environment that is not known here', () => {
    expect(reject([], { KIND_EXPERIMENTAL_PROVIDER: 'nerdctl' })).toMatch(/only docker and podman/);
  });

  it.each([
    [['--existing'], /--kubeconfig, or KUBECONFIG/],
    [['--existing', '--kubeconfig', '/k'], /--driver-image/],
    [['--existing', '--kubeconfig', '/k', '--no-install'], /--consumer-image/],
    [['--existing', '--kubeconfig', '/k:/l'], /takes one kubeconfig/],
    [['--name', 'Not Good'], /lower-case/],
    [['--engine', 'lxc'], /docker, podman/],
    [['--nam', 'x'], /unknown option/],
  ])('refuse %s', (argv, message) => {
    expect(reject(argv)).toMatch(message);
  });

  it('are all described', () => {
    for (const option of suiteCommand().options) expect(option.description, option.long).not.toBe('');
  });

  it('become the target of the tests, which accept it', () => {
    const target = targetOf(parse([]));
    expect(clusterTargetSchema.parse(target)).toEqual(target);
    expect(readTarget({ [targetVariable]: JSON.stringify(target) })).toEqual(target);
    expect(target).toMatchObject({ simulated: true, keepFailed: true, oldestKubernetes: '1.36' });
  });

  it.each([{}, { [targetVariable]: 'x' }, { [targetVariable]: '{"kubeconfig":"/k"}' }])(
    'that are missing stop the tests: %s',
    (given) => {
      expect(() => readTarget(given)).toThrow(/no cluster is named in NETDRA_CLUSTER/);
    },
  );
});

it('formatCall quotes what a shell would take apart', () => {
  const call = { program: 'kind', args: ['a b', "it's", '', 'x=1'], env: { A: 'b c' } };
  expect(formatCall(call)).toBe(`A='b c' kind 'a b' 'it'\\''s' '' x=1`);
});
