import { Command, InvalidArgumentError, Option } from 'commander';
import { pino } from 'pino';
import { privilegedFields } from './driver/index.ts';
import { explain } from './errors.ts';
import { defaultHostDirs, layoutNames } from './metadata/index.ts';
import { parseAddress } from './ops/http-server.ts';
import { hookFailureModes } from './sandbox/index.ts';
import { parseClaimFields, parseDriverName, parseLayouts, parseSimulation, type Settings } from './settings.ts';

const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'];

/** Turns a parser's error into commander's, which names the flag. */
function argument<T>(parse: (text: string) => T): (text: string) => T {
  return (text) => {
    try {
      return parse(text);
    } catch (error) {
      throw new InvalidArgumentError((error as Error).message);
    }
  };
}

const program = new Command('netdra')
  .description('Kubernetes network DRA driver for SR-IOV and DPDK')
  .showHelpAfterError('(netdra run --help lists the flags)');

program
  .command('run', { isDefault: false })
  .description('serve the VFs of this node: kubelet plugin and NRI plugin in one process')
  .addOption(
    new Option('--driver-name <name>', 'name of the driver in claims and slices')
      .default('sriov.netdra.dev')
      .argParser(argument(parseDriverName)),
  )
  .addOption(
    new Option('--node-name <name>', 'name of the Node object of this machine').env('NODE_NAME').makeOptionMandatory(),
  )
  .addOption(
    new Option(
      '--kubeconfig <path>',
      'how to reach the API server; without it the service account of the pod is used',
    ).env('KUBECONFIG'),
  )
  .option('--kubelet-plugins-dir <path>', "the kubelet's plugins directory", '/var/lib/kubelet/plugins')
  .option('--kubelet-registry-dir <path>', "the kubelet's registration directory", '/var/lib/kubelet/plugins_registry')
  .addOption(
    new Option(
      '--pod-uid <uid>',
      "UID of the driver's own pod: in a rolling update two instances then serve side by side",
    ).env('POD_UID'),
  )
  .option('--cdi-dir <path>', 'where CDI specs go; the runtime must scan it', '/var/run/cdi')
  .option('--state-dir <path>', "where the driver keeps its state (default: its directory in the kubelet's plugins)")
  .addOption(
    new Option('--cni-bin-dirs <paths>', 'where CNI plugins are, for claims that use them; comma-separated')
      .default(['/opt/cni/bin'], '/opt/cni/bin')
      .argParser((text: string) => text.split(',')),
  )
  .option('--proc-sys-dir <path>', "where the host's /proc/sys is, writable: for sysctls of interfaces", '/proc/sys')
  .option('--nri-socket <path>', "the runtime's NRI socket", '/var/run/nri/nri.sock')
  .option('--nri-plugin-name <name>', 'name under which the runtime knows us', 'netdra')
  .option('--nri-plugin-index <nn>', 'two digits: our place among the NRI plugins', '10')
  .addOption(
    new Option(
      '--metadata-layouts <names>',
      `dialects of the metadata file (docs/metadata.md), comma-separated: ${layoutNames.join(', ')}`,
    )
      .default(['v1' as const, 'kep' as const], 'v1,kep')
      .argParser(argument(parseLayouts)),
  )
  .option(
    '--attributes-dir <path>',
    'where files of the layout attributes-json go on the node',
    defaultHostDirs.attributesDir,
  )
  .option(
    '--downward-api-dir <path>',
    'where files of the layout downward-api go on the node, into a directory for each pod',
    defaultHostDirs.downwardApiDir,
  )
  .addOption(
    new Option('--enable-device-metadata [bool]', 'false: no metadata files and no CDI specs for new claims')
      .env('ENABLE_DEVICE_METADATA')
      .default(true)
      .argParser(argument(parseBoolean)),
  )
  .addOption(
    new Option(
      '--hook-failure <mode>',
      'when the metadata cannot be written: reject the sandbox, gate its containers, or auto: by runtime version',
    )
      .choices(hookFailureModes)
      .default('auto'),
  )
  .addOption(
    new Option('--live-updates [bool]', 'follow changes of addresses, MTU, MAC and link in running pods')
      .default(true)
      .argParser(argument(parseBoolean)),
  )
  .addOption(
    new Option(
      '--open-claim-fields <fields>',
      `privileged fields that claims may set, not only DeviceClasses; comma-separated: ${privilegedFields.join(', ')}`,
    )
      .default([], 'none')
      .argParser(argument(parseClaimFields)),
  )
  .option('--inventory-policy <path>', 'file that says which VFs are offered; it is read again when it changes')
  .addOption(
    new Option(
      '--http-address <address>',
      'where to serve /metrics, /healthz and /readyz: HOST:PORT or :PORT; off without',
    ).argParser(argument(checkAddress)),
  )
  .addOption(
    new Option('--simulate <vfs>', 'offer simulated VFs (veth pairs) instead of real ones: VFS or PFSxVFS').argParser(
      argument(parseSimulation),
    ),
  )
  .option('--simulate-prefix <name>', 'start of the names of simulated interfaces', 'nsim')
  .addOption(new Option('--log-level <level>', 'least level that is logged').choices(logLevels).default('info'))
  .action(run);

function checkAddress(text: string): string {
  parseAddress(text);
  return text;
}

function parseBoolean(text: string): boolean {
  if (text === 'true' || text === '1') return true;
  if (text === 'false' || text === '0') return false;
  throw new Error('true or false is needed');
}

async function run(settings: Settings): Promise<void> {
  const logger = pino({ level: settings.logLevel, base: null, timestamp: pino.stdTimeFunctions.isoTime });
  const fail = (error: unknown, message: string): never => {
    logger.fatal({ err: error }, message);
    process.stderr.write(`netdra: ${message}: ${explain(error)}\n`);
    process.exit(1);
  };
  process.on('unhandledRejection', (error) => fail(error, 'unexpected failure'));
  process.on('uncaughtException', (error) => fail(error, 'unexpected failure'));
  // Not at the top: the API client alone takes half a second to load, which --help can do without.
  const { startApp } = await import('./app.ts');
  const app = await startApp(settings, logger).catch((error) => fail(error, 'cannot start'));
  const end = (signal: string) => {
    logger.info({ signal }, 'stopping');
    app[Symbol.asyncDispose]().then(
      () => process.exit(0),
      (error) => fail(error, 'cannot stop cleanly'),
    );
  };
  process.once('SIGTERM', () => end('SIGTERM'));
  process.once('SIGINT', () => end('SIGINT'));
}

await program.parseAsync();
