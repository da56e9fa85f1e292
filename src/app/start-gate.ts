import { existsSync } from 'node:fs';
import type { StartGatePort } from '../driver/composition/ports.ts';
import type { KubeClient } from '../framework/kube/index.ts';
import {
  chooseStartGate,
  defaultGateProgram,
  gateProgramPath,
  installGate,
  isHookless,
  readRuntimeHandlers,
} from '../framework/metadata/gate/index.ts';
import type { Settings } from '../instance/settings.ts';
import type { Logger } from '../lib/logger.ts';

/**
 * Time limit of the gate, in seconds. Less than the kubelet's timeout of two minutes for runtime requests, so that the kubelet
 * gets the gate's error.
 */
const gateTimeoutSeconds = 100;
const readNodeMs = 10_000;

/** Chooses the start gate and installs its program. @throws GateError */
export async function openStartGate(
  settings: Settings,
  { kube, dataDir, logger }: { kube: KubeClient; dataDir: string; logger: Logger },
): Promise<StartGatePort> {
  const { nodeName, startGate, hooklessRuntimeHandlers } = settings;
  // An earlier choice must not change in a restart while the API server is unreachable.
  const isInstalled = existsSync(gateProgramPath(dataDir));
  const handlers =
    startGate === 'file' ? 'unknown' : await readRuntimeHandlers(kube, nodeName, AbortSignal.timeout(readNodeMs));
  const isKept = startGate === 'auto' && isInstalled && typeof handlers === 'object' && 'unreadable' in handlers;
  const mode = isKept ? 'hook' : startGate;
  const { gate, reason, isDoubtful } = chooseStartGate(mode, handlers, hooklessRuntimeHandlers);
  logger[isDoubtful ? 'warn' : 'info']({ gate, reason }, 'start gate chosen');
  if (gate === 'file') return { runsHooks: () => false };
  const program = await installGate({ from: settings.gateProgram ?? defaultGateProgram(), dataDir });
  return {
    hook: { program, timeoutSeconds: gateTimeoutSeconds },
    runsHooks: (handler) => !isHookless(handler, hooklessRuntimeHandlers),
  };
}
