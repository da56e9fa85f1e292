import { Command, Option } from 'commander';
import { closedFields } from '../driver/api/claim-fields.ts';
import { cniUses } from '../driver/api/cni-rules.ts';
import { deviceInfoDir } from '../driver/dialects/device-info.ts';
import { defaultHooklessHandlers, startGateModes } from '../framework/metadata/gate/choose-start-gate.ts';
import { layoutNames } from '../framework/metadata/layouts/layout.ts';
import { explain } from '../lib/errors.ts';
import { argument, commonOptions } from './command-options.ts';
import { parseAddress } from './ops/http-server.ts';
import {
  defaultReconcileIntervalMs,
  parseClaimFields,
  parseCniUses,
  parseHandlers,
  parseLayouts,
  parseList,
  parseSeconds,
  type Settings,
} from './settings.ts';

const logLevels = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'];

/** `netdra run`: the driver. */
export function runCommand(): Command {
  return new Command('run')
    .showHelpAfterError('(netdra run --help lists the flags)')
    .description('serve the VFs of this node: kubelet plugin and NRI plugin in one process')
    .addOption(commonOptions.driverName())
    .addOption(
      new Option('--node-name <name>', 'name of the Node object of this machine')
        .env('NODE_NAME')
        .makeOptionMandatory(),
    )
    .addOption(commonOptions.kubeconfig())
    .addOption(commonOptions.kubeletPluginsDir())
    .addOption(commonOptions.kubeletRegistryDir())
    .addOption(
      new Option(
        '--pod-uid <uid>',
        "UID of the driver's own pod: in a rolling update two instances then serve side by side",
      ).env('POD_UID'),
    )
    .addOption(commonOptions.cdiDir())
    .addOption(commonOptions.stateDir())
    .addOption(
      new Option('--cni-bin-dirs <paths>', 'where CNI plugins are, for claims that use them; comma-separated')
        .default(['/opt/cni/bin'], '/opt/cni/bin')
        .argParser((text: string) => text.split(',')),
    )
    .addOption(
      new Option('--cni-uses <uses>', `what CNI plugins may do, comma-separated: ${cniUses.join(', ')}; empty: nothing`)
        .default([...cniUses], cniUses.join(','))
        .argParser(argument(parseCniUses)),
    )
    .addOption(
      new Option('--cni-allowed-plugins <names>', 'CNI plugins that may run, comma-separated; *: all')
        .default(['*'], '*')
        .argParser(parseList),
    )
    .addOption(
      new Option(
        '--cni-definition-namespaces <names>',
        'namespaces whose NetworkAttachmentDefinitions may say which plugins run, comma-separated; *: all',
      )
        .default(['*'], '*')
        .argParser(parseList),
    )
    .addOption(commonOptions.procSysDir())
    .addOption(commonOptions.nriSocket())
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
    .addOption(commonOptions.attributesDir())
    .addOption(commonOptions.downwardApiDir())
    .addOption(
      new Option('--device-info-dir <path>', 'where device-info files go on the node (docs/dialects.md)').default(
        deviceInfoDir,
      ),
    )
    .addOption(
      new Option('--enable-device-metadata [bool]', 'false: no metadata files for new claims')
        .env('ENABLE_DEVICE_METADATA')
        .default(true)
        .argParser(argument(parseBoolean)),
    )
    .addOption(
      new Option(
        '--start-gate <mode>',
        'containers that start before their devices are ready: wait in a hook, have no metadata file and fail, or auto: by runtime handlers of the node',
      )
        .env('NETDRA_START_GATE')
        .choices(startGateModes)
        .default('auto'),
    )
    .addOption(
      new Option(
        '--gate-program <path>',
        'netdra-gate, the program of that hook, which is copied to the node (default: the one beside the driver)',
      ).env('NETDRA_GATE_PROGRAM'),
    )
    .addOption(
      new Option(
        '--hookless-runtime-handlers <names>',
        'runtime handlers that may not run OCI hooks, comma-separated, with * for any characters',
      )
        .env('NETDRA_HOOKLESS_RUNTIME_HANDLERS')
        .default([...defaultHooklessHandlers], defaultHooklessHandlers.join(','))
        .argParser(argument(parseHandlers)),
    )
    .addOption(
      new Option('--live-updates [bool]', 'follow changes of addresses, MTU, MAC and link in running pods')
        .default(true)
        .argParser(argument(parseBoolean)),
    )
    .addOption(
      new Option(
        '--open-claim-fields <fields>',
        `closed fields that claims may set where their DeviceClass does not; comma-separated: ${closedFields.join(', ')}`,
      )
        .default([], 'none')
        .argParser(argument(parseClaimFields)),
    )
    .addOption(commonOptions.inventoryPolicy())
    .addOption(
      new Option(
        '--reconcile-interval <seconds>',
        'how often pods, claims, VFs and files are compared with what is remembered, and mended',
      )
        .default(defaultReconcileIntervalMs, '60')
        .argParser(argument(parseSeconds)),
    )
    .addOption(new Option('--boot-id-path <path>', 'where the boot id of the node is read').hideHelp())
    .addOption(
      new Option(
        '--http-address <address>',
        'where to serve /metrics, /healthz and /readyz: HOST:PORT or :PORT; off without',
      ).argParser(argument(checkAddress)),
    )
    .option(
      '--http-tls-dir <path>',
      'directory with tls.crt and tls.key: serves them by HTTPS; read again when they change',
    )
    .addOption(commonOptions.simulate())
    .option('--simulate-prefix <name>', 'start of the names of simulated interfaces', 'nsim')
    .addOption(new Option('--log-level <level>', 'least level that is logged').choices(logLevels).default('info'))
    .action(({ reconcileInterval, cniUses: uses, cniAllowedPlugins, cniDefinitionNamespaces, ...settings }) =>
      run({
        ...settings,
        reconcileIntervalMs: reconcileInterval,
        cni: { uses, allowedPlugins: cniAllowedPlugins, definitionNamespaces: cniDefinitionNamespaces },
      }),
    );
}

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
  // Imported lazily: the API client alone takes half a second to load, and --help does not need it.
  const { createLogger } = await import('./pino-logger.ts');
  const logger = createLogger(settings.logLevel);
  const fail = (error: unknown, message: string): never => {
    logger.fatal({ err: error }, message);
    process.stderr.write(`netdra: ${message}: ${explain(error)}\n`);
    process.exit(1);
  };
  process.on('unhandledRejection', (error) => fail(error, 'unexpected failure'));
  process.on('uncaughtException', (error) => fail(error, 'unexpected failure'));
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
