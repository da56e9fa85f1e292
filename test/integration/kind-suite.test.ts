import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { loadYaml, type V1DaemonSet } from '@kubernetes/client-node';
import { describe, expect, it } from 'vitest';
import {
  createCluster,
  deleteCluster,
  exportLogs,
  imagesArchive,
  installChart,
  listClusters,
  loadImages,
  type ProgramCall,
  writeKubeconfig,
} from '../../e2e/kind/commands.ts';
import { locateKind } from '../../e2e/kind/debian-kind.ts';
import { type KindSettings, parseSettings, readChartFacts, repository, suiteCommand } from '../../e2e/kind/settings.ts';
import { locateTools } from '../../e2e/node/tools.ts';
import { renderObjects } from '../../e2e/release/chart.ts';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import { tempDir } from '../doubles/temp-dir.ts';
import { findTypeProblems } from '../unit/deploy/kubernetes-types.ts';

const read = (path: string) => readFileSync(join(repository, path), 'utf8');

const kindConfig = loadYaml<{ containerdConfigPatches: string[] }>(read('e2e/kind/kind.yaml'));

describe('the real kind', () => {
  const engineRefuses = '#!/bin/sh\nexit 1\n';

  /** What it says when no container engine works: with flags or a configuration that it does not take, it comes not so far. */
  function kindSays({ args, env = {} }: ProgramCall, engine: string): string {
    using dir = tempDir();
    writeFileSync(join(dir.path, engine), engineRefuses, { mode: 0o755 });
    const more = { ...env, PATH: dir.path, HOME: dir.path };
    const { stderr } = spawnSync(locateKind(cacheFolder(process.env)), args, { encoding: 'utf8', env: more });
    return stderr;
  }
  const reachesEngine = (engine: string) => new RegExp(`command "${engine} .* failed with error: exit status 1`);
  const settings = (engine: string) =>
    parseSettings(['--engine', engine], { NETDRA_CACHE: '/nowhere' }) as KindSettings;

  const calls = { listClusters, createCluster, deleteCluster, writeKubeconfig, exportLogs };
  it.each(Object.entries(calls))('takes what %s gives it, and asks docker', (_, call) => {
    expect(kindSays(call(settings('docker')), 'docker')).toMatch(reachesEngine('docker'));
  });

  it('takes the archive that the images are in', () => {
    using dir = tempDir();
    const mine = { ...settings('docker'), workDir: dir.path };
    writeFileSync(imagesArchive(mine), '');
    expect(kindSays(loadImages(mine)[1]!, 'docker')).toMatch(reachesEngine('docker'));
  });

  it('asks podman where that is the engine', () => {
    expect(kindSays(createCluster(settings('podman')), 'podman')).toMatch(/command "podman /);
  });

  it('would say so if kind.yaml or an argument were wrong', () => {
    using dir = tempDir();
    const path = join(dir.path, 'kind.yaml');
    writeFileSync(path, read('e2e/kind/kind.yaml').replace('containerdConfigPatches', 'containerdPatches'));
    const { args, ...rest } = createCluster(settings('docker'));
    const withFile = args.map((word) => (word.endsWith('kind.yaml') ? path : word));
    expect(kindSays({ ...rest, args: withFile }, 'docker')).toMatch(/field containerdPatches not found/);
    expect(kindSays({ ...rest, args: [...args, '--waitt'] }, 'docker')).toMatch(/unknown flag: --waitt/);
  });
});

describe('e2e/kind/kind.yaml', () => {
  /** Sections that a node's configuration may begin with; a patch adds to them. */
  const bases = {
    2: 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd]\n  default_runtime_name = "runc"\n',
    3: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\n  default_runtime_name = 'runc'\n",
  };
  it.each([2, 3] as const)('switches NRI and CDI on in containerd 2 with a configuration of version %i', (version) => {
    using dir = tempDir();
    const dump = (patches: string[]) => {
      const path = join(dir.path, 'config.toml');
      writeFileSync(path, [bases[version], ...patches].join('\n'));
      const containerd = join(locateTools(process.env).containerdDirs['2.1'], 'containerd');
      const { stdout, stderr, status } = spawnSync(containerd, ['--config', path, 'config', 'dump'], {
        encoding: 'utf8',
      });
      expect(status, stderr).toBe(0);
      const section = (name: string) =>
        new RegExp(`^ *\\[plugins\\.'${name.replaceAll('.', '\\.')}'\\]\\n((?: +\\w.*\\n)*)`, 'm').exec(stdout)?.[1] ??
        '';
      const cdi = /enable_cdi = (\w+)/.exec(section('io.containerd.cri.v1.runtime'))?.[1];
      const nri = /disable = (\w+)/.exec(section('io.containerd.nri.v1.nri'))?.[1];
      return { cdi, nri };
    };
    expect(dump(kindConfig.containerdConfigPatches)).toEqual({ cdi: 'true', nri: 'false' });
    // This reads the sections that count: with the opposite, it sees the opposite.
    const off = kindConfig.containerdConfigPatches.map((patch) =>
      patch.replace('disable = false', 'disable = true').replace('enable_cdi = true', 'enable_cdi = false'),
    );
    expect(dump(off)).toMatchObject({ nri: 'true', ...(version === 2 ? { cdi: 'false' } : {}) });
  });

  it('is for a node of Kubernetes 1.36 or newer', () => {
    const image = suiteCommand().getOptionValue('nodeImage');
    const [, minor] = /^kindest\/node:v1\.(\d+)\.\d+$/.exec(image) ?? [];
    expect(Number(minor)).toBeGreaterThanOrEqual(36);
    expect(read('e2e/kind/kind.yaml')).toContain(`--image ${image}`);
  });
});

describe('the chart as the suite installs it', () => {
  const settings = parseSettings(['--engine', 'docker'], { NETDRA_CACHE: '/cache' });

  /** Values as Helm takes them from the arguments: files, then single ones. */
  function valuesOf(args: string[]): Record<string, unknown> {
    const given = (flag: string) => args.flatMap((word, index) => (args[index - 1] === flag ? [word] : []));
    const files = given('--values').map((path) => loadYaml<Record<string, unknown>>(readFileSync(path, 'utf8')));
    const single = given('--set-string').map((assignment) => {
      const [path = '', value = ''] = assignment.split('=');
      return path.split('.').reduceRight<unknown>((inner, key) => ({ [key]: inner }), value);
    });
    return mergeAll([...files, ...single] as Record<string, unknown>[]);
  }
  const mergeAll = (all: Record<string, unknown>[]) => all.reduce(merge, {});
  function merge(base: Record<string, unknown>, over: Record<string, unknown>): Record<string, unknown> {
    const isObject = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value);
    const entries = Object.entries(over).map(([key, value]) => [
      key,
      isObject(value) && isObject(base[key]) ? merge(base[key] as typeof base, value as typeof over) : value,
    ]);
    return { ...base, ...Object.fromEntries(entries) };
  }

  const { args } = installChart(settings, '1700000000');
  const options = { values: valuesOf(args), releaseName: args[2] ?? '', namespace: settings.driverNamespace };
  const objects = renderObjects(options);

  it('fits the schemas of the chart and of Kubernetes', () => {
    expect(objects.length).toBeGreaterThan(10);
    expect(objects.flatMap((object) => findTypeProblems(object, `V1${object.kind}`))).toEqual([]);
  });

  it('runs the image that was loaded, on simulated VFs', () => {
    const daemonSet = objects.find(({ kind }) => kind === 'DaemonSet') as V1DaemonSet;
    expect(daemonSet.metadata).toMatchObject({ name: 'netdra', namespace: 'netdra' });
    expect(daemonSet.spec?.template.metadata?.annotations).toEqual({ run: '1700000000' });
    const [container] = daemonSet.spec?.template.spec?.containers ?? [];
    expect(container).toMatchObject({ image: settings.driverImage, imagePullPolicy: 'Never' });
    expect(container?.args).toContain('--simulate=8');
  });

  it('matches the facts that the tests read from the values', () => {
    const { driverName, kubeletPlugin, deviceClasses } = readChartFacts(settings.values);
    const names = objects.flatMap(({ kind, metadata }) => (kind === 'DeviceClass' ? [metadata?.name] : []));
    expect(names).toEqual([deviceClasses.kernel.name, deviceClasses.dpdk.name]);
    const args = (objects.find(({ kind }) => kind === 'DaemonSet') as V1DaemonSet).spec?.template.spec?.containers[0]
      ?.args;
    expect(args).toEqual(
      expect.arrayContaining([
        `--driver-name=${driverName}`,
        `--kubelet-plugins-dir=${kubeletPlugin.kubeletPluginsDirectoryPath}`,
        `--cdi-dir=${kubeletPlugin.cdiDirectoryPath}`,
      ]),
    );
  });
});

describe('e2e/kind/consumer.Dockerfile', () => {
  const text = read('e2e/kind/consumer.Dockerfile');

  it('copies what its context has', () => {
    const copied = [...text.matchAll(/^COPY (?!--from)(\S+) /gm)].map(([, path = '']) => path);
    expect(copied).toEqual(['Makefile', 'src']);
    for (const path of copied) expect(existsSync(join(repository, 'programs', path))).toBe(true);
  });

  it('builds the tool as programs/Dockerfile does', () => {
    const build = (path: string) => /^FROM .* AS build\n(?:(?:RUN apt|COPY|ARG).*\n)*/m.exec(read(path))?.[0];
    expect(build('e2e/kind/consumer.Dockerfile')).toBe(
      build('programs/Dockerfile')?.replace('ARG VERSION=unknown\n', ''),
    );
  });
});
