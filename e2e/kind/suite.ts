import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, rmSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { findFolderWith, pathFolders } from '../../scripts/packages/host-programs.ts';
import { explain, NetdraError } from '../../src/lib/errors.ts';
import { type ClusterTarget, targetVariable } from '../cluster/target.ts';
import * as commands from './commands.ts';
import { formatCall, type ProgramCall } from './commands.ts';
import {
  type ExistingSettings,
  type KindSettings,
  readChartFacts,
  repository,
  type SuiteSettings,
} from './settings.ts';

export interface SuiteDependencies {
  env: NodeJS.ProcessEnv;
  /** Prints a line for the user. */
  print: (line: string) => void;
  /** Whether the programs' output is shown; default yes. */
  output?: 'inherit' | 'ignore';
}

/** A step that failed. The failed program has already printed the reason. */
export class SuiteError extends NetdraError<'program-missing' | 'step-failed' | 'cluster-exists'> {}

/**
 * Sets up the cluster and the driver, runs the tests, and finally removes what it created: a kind cluster only if all
 * succeeded.
 * @returns whether all tests passed
 * @throws SuiteError if it fails before there is a cluster
 */
export async function runSuite(settings: SuiteSettings, dependencies: SuiteDependencies): Promise<boolean> {
  checkPrograms(settings, dependencies.env);
  const suite = new Suite(dependencies);
  return settings.mode === 'kind' ? await suite.onKind(settings) : await suite.onExisting(settings);
}

function checkPrograms(settings: SuiteSettings, { PATH }: NodeJS.ProcessEnv): void {
  for (const program of commands.neededPrograms(settings)) {
    if (findFolderWith(pathFolders(PATH), [program]) !== undefined) continue;
    throw new SuiteError('program-missing', `${program} is not in PATH`, { hint: commands.sources[program] ?? '' });
  }
}

class Suite {
  readonly #env: NodeJS.ProcessEnv;
  readonly #print: (line: string) => void;
  readonly #shown: 'inherit' | 'ignore';

  constructor({ env, print, output = 'inherit' }: SuiteDependencies) {
    this.#env = env;
    this.#print = print;
    this.#shown = output;
  }

  async onKind(settings: KindSettings): Promise<boolean> {
    mkdirSync(settings.workDir, { recursive: true });
    rmSync(commands.logsFolder(settings), { recursive: true, force: true });
    await this.#haveCluster(settings);
    try {
      await this.#all('building the images', commands.buildImages(settings));
      await this.#all('loading the images into the node', commands.loadImages(settings));
      rmSync(commands.imagesArchive(settings), { force: true });
      await this.#installAndTest(settings);
    } catch (error) {
      this.#print(explain(error));
      await this.#step('collecting logs', commands.exportLogs(settings)).catch((cause) => this.#print(explain(cause)));
      this.#sayHowToLook(settings);
      return false;
    }
    if (settings.keep) this.#sayHowToLook(settings);
    else await this.#step('removing the cluster', commands.deleteCluster(settings));
    return true;
  }

  async onExisting(settings: ExistingSettings): Promise<boolean> {
    try {
      if (settings.install) await this.#installAndTest(settings);
      else await this.#test(settings);
      return true;
    } catch (error) {
      this.#print(explain(error));
      return false;
    } finally {
      if (settings.install && settings.keep) this.#print(`the driver stays in namespace ${settings.driverNamespace}`);
      else if (settings.install) await this.#all('removing the driver', commands.uninstallChart(settings));
    }
  }

  async #haveCluster(settings: KindSettings): Promise<void> {
    const { name, reuse } = settings;
    const isThere = (await this.#output(commands.listClusters(settings))).split('\n').includes(name);
    if (isThere && !reuse) {
      const remove = formatCall(commands.deleteCluster(settings));
      throw new SuiteError('cluster-exists', `there is a kind cluster ${name}, which a run before may have kept`, {
        hint: `take it with --reuse, or remove it: ${remove}`,
      });
    }
    if (isThere) await this.#step('taking the cluster that is there', commands.writeKubeconfig(settings));
    else await this.#createCluster(settings);
  }

  async #createCluster(settings: KindSettings): Promise<void> {
    commands.writeKindConfig(settings);
    try {
      await this.#step('creating the cluster', commands.createCluster(settings));
    } catch (cause) {
      // kind removes a cluster that failed to start, unless it was interrupted.
      const remove = formatCall(commands.deleteCluster(settings));
      throw new SuiteError('step-failed', `there is no cluster to test on`, {
        cause,
        hint: `if something is left: ${remove}`,
      });
    }
  }

  async #installAndTest(settings: SuiteSettings): Promise<void> {
    await this.#step('installing the driver', commands.installChart(settings, String(Date.now())));
    await this.#test(settings);
  }

  async #test(settings: SuiteSettings): Promise<void> {
    const target = { [targetVariable]: JSON.stringify(targetOf(settings)) };
    await this.#step('running the tests', commands.runTests(settings, target));
  }

  async #all(what: string, calls: ProgramCall[]): Promise<void> {
    for (const call of calls) await this.#step(what, call);
  }

  async #step(what: string, call: ProgramCall): Promise<void> {
    // The environment of a call is long, or not helpful to a reader.
    this.#print(`${what}: ${formatCall({ ...call, env: {} })}`);
    await this.#run(call, this.#shown);
  }

  async #output(call: ProgramCall): Promise<string> {
    return await this.#run(call, 'pipe');
  }

  /** @returns its output unless that is shown */
  async #run(call: ProgramCall, stdout: 'inherit' | 'ignore' | 'pipe'): Promise<string> {
    const { program, args, env } = call;
    const child = spawn(program, args, {
      cwd: repository,
      env: { ...this.#env, ...env },
      stdio: ['ignore', stdout, this.#shown],
    });
    const output = child.stdout === null ? '' : text(child.stdout);
    const [code, signal] = (await once(child, 'exit').catch((cause) => Promise.reject(failure(call, cause)))) as [
      number | null,
      NodeJS.Signals | null,
    ];
    if (code !== 0) throw failure(call, new Error(code === null ? `ended by ${signal}` : `exit code ${code}`));
    return await output;
  }

  #sayHowToLook(settings: KindSettings): void {
    const { name, engine, kubeconfig, driverNamespace, imageArchives } = settings;
    const logs = commands.logsFolder(settings);
    if (existsSync(logs)) this.#print(`logs of the node and its pods: ${logs}`);
    if (imageArchives !== undefined) return;
    const lines = [
      `the cluster ${name} is still there. To look at it:`,
      `  export KUBECONFIG=${kubeconfig}`,
      '  kubectl get pods --all-namespaces',
      `  kubectl logs --namespace ${driverNamespace} --selector app.kubernetes.io/name=netdra --prefix`,
      '  kubectl get resourceslices,resourceclaims --all-namespaces',
      '  kubectl get events --all-namespaces',
      `  ${engine} exec -it ${name}-control-plane bash`,
      'To run the tests on it again, with images built anew:',
      `  npm run e2e:kind -- --reuse${name === 'netdra-e2e' ? '' : ` --name ${name}`}`,
      'To remove it:',
      `  ${formatCall(commands.deleteCluster(settings))}`,
    ];
    for (const line of lines) this.#print(line);
  }
}

function failure(call: ProgramCall, cause: unknown): SuiteError {
  return new SuiteError('step-failed', `${formatCall({ ...call, env: {} })} failed`, { cause });
}

/** Facts about the cluster for the tests. */
export function targetOf(settings: SuiteSettings): ClusterTarget {
  const { kubeconfig, driverNamespace, consumerImage, values, keep } = settings;
  const { driverName, kubeletPlugin, deviceClasses, admissionPolicies } = readChartFacts(values);
  const { kubeletRootDirectoryPath, kubeletPluginsDirectoryPath } = kubeletPlugin;
  return {
    kubeconfig,
    driverNamespace,
    consumerImage,
    driver: driverName,
    classes: { kernel: deviceClasses.kernel.name, dpdk: deviceClasses.dpdk.name },
    simulated: kubeletPlugin.simulate !== '',
    paths: {
      kubeletPlugins: kubeletPluginsDirectoryPath || `${kubeletRootDirectoryPath}/plugins`,
      cdi: kubeletPlugin.cdiDirectoryPath,
    },
    admissionPolicies: admissionPolicies.vfConfig && !kubeletPlugin.openClaimFields.includes('macAddress'),
    // A cluster that is kept is left as it was.
    keepFailed: settings.mode === 'kind' || keep,
    oldestKubernetes: settings.mode === 'kind' ? '1.36' : '1.34',
    ...(settings.mode === 'kind' ? { engine: settings.engine } : {}),
    // Three kubelets and runtimes on the processors of one machine.
    ...(settings.mode === 'kind' && settings.workers > 0 ? { timeoutMs: 120_000 } : {}),
  };
}
