import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseSettings, repository } from '../../../e2e/kind/settings.ts';
import { runSuite } from '../../../e2e/kind/suite.ts';
import { explain } from '../../../src/lib/errors.ts';
import { FakePrograms } from './fake-programs.ts';

const forKind = ['docker', 'kind', 'helm', 'vitest'];

/** Runs the suite with programs that only note how they are called. */
async function run(programs: FakePrograms, ...argv: string[]) {
  const lines: string[] = [];
  const run = async () =>
    await runSuite(parseSettings(argv, programs.env), { env: programs.env, print: (line) => lines.push(line) });
  const result = await run().catch((error) => explain(error));
  // The time of the run is in an annotation.
  const calls = programs.calls(repository).map((line) => line.replace(/\.run=\d+/, '.run=N'));
  return { result, calls, lines, text: lines.join('\n') };
}

const verbs = (calls: string[]) => calls.map((call) => call.split(' ').slice(0, 2).join(' '));
const wholeRun = ['kind get', 'kind create', 'docker build', 'docker build', 'docker save', 'kind load', 'helm upgrade', 'vitest run']; // biome-ignore format: a list

describe('npm run e2e:kind', () => {
  it('makes a cluster, has driver and tests in it, and removes it', async () => {
    using programs = new FakePrograms(forKind);
    const { result, calls, text } = await run(programs);
    expect(result).toBe(true);
    expect(calls).toEqual([
      'kind get clusters',
      'kind create cluster --name netdra-e2e --image kindest/node:v1.36.1 --config $REPO/e2e/kind/kind.yaml --kubeconfig $TMP/cache/kind/netdra-e2e/kubeconfig --wait 5m',
      'docker build --tag localhost/netdra/driver:e2e --file $REPO/Dockerfile $REPO',
      'docker build --tag localhost/netdra/consumer:e2e --file $REPO/e2e/kind/consumer.Dockerfile $REPO/programs',
      'docker save --output $TMP/cache/kind/netdra-e2e/images.tar localhost/netdra/driver:e2e localhost/netdra/consumer:e2e',
      'kind load image-archive $TMP/cache/kind/netdra-e2e/images.tar --name netdra-e2e',
      'helm upgrade --install netdra $REPO/deploy/helm/netdra --kubeconfig $TMP/cache/kind/netdra-e2e/kubeconfig --namespace netdra --create-namespace --values $REPO/e2e/kind/values.yaml --set-string image.repository=localhost/netdra/driver --set-string image.tag=e2e --set-string kubeletPlugin.podAnnotations.run=N --wait --timeout 5m',
      'vitest run --config $REPO/e2e/kind/vitest.config.ts',
      'kind delete cluster --name netdra-e2e --kubeconfig $TMP/cache/kind/netdra-e2e/kubeconfig',
    ]);
    expect(text).not.toContain('still there');
  });

  it('works with podman, which needs an option to save several images to one archive', async () => {
    using programs = new FakePrograms(['podman', 'kind', 'helm', 'vitest']);
    const { result, calls } = await run(programs);
    expect(result).toBe(true);
    expect(programs.lastEnvironment.provider).toBe('podman');
    expect(calls.find((call) => call.startsWith('podman save'))).toContain('--multi-image-archive --output');
    expect(calls.filter((call) => call.startsWith('docker'))).toEqual([]);
  });

  it('takes the engine that is asked for where both are there', async () => {
    using programs = new FakePrograms([...forKind, 'podman']);
    programs.env.KIND_EXPERIMENTAL_PROVIDER = 'docker';
    expect(verbs((await run(programs, '--engine', 'podman')).calls)).toContain('podman build');
  });

  it('hands arguments on to vitest, and chart values to helm', async () => {
    using programs = new FakePrograms(forKind);
    const values = join(programs.path, 'more.yaml');
    writeFileSync(values, 'kubeletPlugin: { simulate: "16", cdiDirectoryPath: /etc/cdi }\n');
    const { calls } = await run(programs, '--values', values, '--name', 'mine', '--', '-t', 'Cleanup');
    expect(calls).toContain('vitest run --config $REPO/e2e/kind/vitest.config.ts -t Cleanup');
    expect(calls.find((call) => call.startsWith('helm'))).toContain(
      '--values $REPO/e2e/kind/values.yaml --values $TMP/more.yaml',
    );
    expect(calls.at(-1)).toContain('kind delete cluster --name mine');
  });

  it.each([
    ['the tests', 'vitest run*', wholeRun],
    ['the installation', 'helm upgrade*', wholeRun.slice(0, -1)],
    ['a build', 'docker build*', wholeRun.slice(0, 3)],
  ])(
    'keeps the cluster when %s fail, collects logs and says how to look and how to remove it',
    async (_, failure, steps) => {
      using programs = new FakePrograms(forKind, { failure });
      const { result, calls, text } = await run(programs);
      expect(result).toBe(false);
      expect(verbs(calls)).toEqual([...steps, 'kind export']);
      expect(text).toMatch(/(vitest|helm|docker) .* failed: exit code 3/);
      expect(text).toContain(`export KUBECONFIG=${programs.path}/cache/kind/netdra-e2e/kubeconfig`);
      expect(text).toContain('docker exec -it netdra-e2e-control-plane bash');
      expect(text).toContain('npm run e2e:kind -- --reuse\n');
      expect(text).toMatch(/KIND_EXPERIMENTAL_PROVIDER=docker kind delete cluster --name netdra-e2e/);
    },
  );

  it('says so when the cluster cannot be made, and goes no further', async () => {
    using programs = new FakePrograms(forKind, { failure: 'kind create*' });
    const { result, calls } = await run(programs);
    expect(result).toMatch(
      /^there is no cluster to test on: kind create cluster --name netdra-e2e .* failed: exit code 3/,
    );
    expect(result).toMatch(/if something is left: .*kind delete cluster --name netdra-e2e/);
    expect(verbs(calls)).toEqual(['kind get', 'kind create']);
  });

  it('does not touch a cluster of that name that is there, unless it is to be taken', async () => {
    using programs = new FakePrograms(forKind, { clusters: ['other', 'netdra-e2e'] });
    const refused = await run(programs);
    expect(refused.result).toMatch(/there is a kind cluster netdra-e2e.*--reuse.*kind delete cluster/);
    expect(verbs(refused.calls)).toEqual(['kind get']);
    const taken = await run(programs, '--reuse');
    expect(taken.result).toBe(true);
    expect(verbs(taken.calls).slice(1)).toEqual(['kind get', 'kind export', ...wholeRun.slice(2), 'kind delete']);
  });

  it('leaves the cluster after success where that is asked for', async () => {
    using programs = new FakePrograms(forKind);
    const { result, calls, text } = await run(programs, '--keep');
    expect(result).toBe(true);
    expect(verbs(calls)).toEqual(wholeRun);
    expect(text).toContain('the cluster netdra-e2e is still there');
  });

  it.each([
    ['kind', ['docker', 'helm', 'vitest'], [], /^kind is not in PATH \(install .*https:\/\/kind\.sigs\.k8s\.io/],
    ['helm', ['docker', 'kind', 'vitest'], [], /^helm is not in PATH \(install it: https:\/\/helm\.sh/],
    ['an engine', ['kind', 'helm'], [], /^neither docker nor podman is in PATH \(install one of them: https:/],
    ['the chosen engine', forKind, ['--engine', 'podman'], /^podman is not in PATH \(install it: https:\/\/podman\.io/],
  ])('says in one line where to get %s, before it does anything', async (_, names, argv, message) => {
    using programs = new FakePrograms(names);
    const { result, calls } = await run(programs, ...argv);
    expect(result).toMatch(message);
    expect(result).not.toContain('\n');
    expect(calls).toEqual([]);
  });
});

describe('npm run e2e:kind -- --existing', () => {
  const existing = [
    '--existing',
    '--kubeconfig',
    '/k',
    '--driver-image',
    'r:5000/netdra:1',
    '--consumer-image',
    'r:5000/c:1',
  ];

  it('installs the driver, tests it and removes it with its namespace; the cluster stays', async () => {
    using programs = new FakePrograms(['helm', 'kubectl', 'vitest']);
    const { result, calls } = await run(programs, ...existing);
    expect(result).toBe(true);
    expect(calls).toEqual([
      'helm upgrade --install netdra $REPO/deploy/helm/netdra --kubeconfig /k --namespace netdra-e2e --create-namespace --set-string image.repository=r:5000/netdra --set-string image.tag=1 --set-string kubeletPlugin.podAnnotations.run=N --wait --timeout 5m',
      'vitest run --config $REPO/e2e/kind/vitest.config.ts',
      'helm uninstall netdra --kubeconfig /k --namespace netdra-e2e --wait --timeout 5m',
      'kubectl delete namespace netdra-e2e --kubeconfig /k --ignore-not-found --timeout 5m',
    ]);
  });

  it('removes it when the tests fail, too, unless it is to stay', async () => {
    using programs = new FakePrograms(['helm', 'kubectl', 'vitest'], { failure: 'vitest*' });
    const failed = await run(programs, ...existing);
    expect(failed.result).toBe(false);
    expect(verbs(failed.calls)).toEqual(['helm upgrade', 'vitest run', 'helm uninstall', 'kubectl delete']);
    const kept = await run(programs, ...existing, '--keep');
    expect(kept.result).toBe(false);
    expect(verbs(kept.calls).slice(4)).toEqual(['helm upgrade', 'vitest run']);
    expect(kept.text).toContain('the driver stays in namespace netdra-e2e');
  });

  it('needs no program to test a driver that is there, and tells the tests where it is', async () => {
    using programs = new FakePrograms(['vitest']);
    const values = join(programs.path, 'mine.yaml');
    writeFileSync(values, 'driverName: vf.example.com\nkubeletPlugin: { cdiDirectoryPath: /etc/cdi }\n');
    const argv = ['--existing', '--no-install', '--kubeconfig', '/k', '--consumer-image', 'c:1', '--values', values];
    const { result, calls } = await run(programs, ...argv);
    expect(result).toBe(true);
    expect(verbs(calls)).toEqual(['vitest run']);
    expect(JSON.parse(programs.lastEnvironment.target)).toEqual({
      kubeconfig: '/k',
      driver: 'vf.example.com',
      driverNamespace: 'kube-system',
      consumerImage: 'c:1',
      classes: { kernel: 'netdra-kernel', dpdk: 'netdra-dpdk' },
      simulated: false,
      paths: { kubeletPlugins: '/var/lib/kubelet/plugins', cdi: '/etc/cdi' },
      admissionPolicies: true,
      keepFailed: false,
      oldestKubernetes: '1.34',
    });
  });
});
