import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { findProtoDir } from '../../lib/proto.ts';
import { draVersions } from './dra-service.ts';
import { KubeletPluginError } from './errors.ts';
import { healthVersions } from './health-service.ts';
import type { KubeletPluginOptions } from './helper.ts';
import type { DraPlugin } from './plugin.ts';

/**
 * Checks options for faults that would otherwise appear only at the kubelet's first call, when a pod waits.
 * @throws KubeletPluginError `invalid-options`
 */
export function checkOptions(plugin: DraPlugin, options: KubeletPluginOptions): void {
  const { driver, claims, logger, metadata, drainMs, protoDir } = options;
  for (const method of ['prepareResourceClaims', 'unprepareResourceClaims'] as const) {
    if (typeof plugin[method] !== 'function') throw invalid(`the plugin has no method ${method}`);
  }
  if (typeof claims?.readClaim !== 'function') throw invalid('option claims has no method readClaim');
  for (const level of ['debug', 'info', 'warn', 'error'] as const) {
    if (typeof logger?.[level] !== 'function') throw invalid(`option logger has no method ${level}`);
  }
  if (drainMs !== undefined && !(Number.isFinite(drainMs) && drainMs >= 0)) {
    throw invalid(`option drainMs is ${drainMs}, not a number of milliseconds`);
  }
  if (metadata !== undefined && metadata.driver !== driver) {
    const hint = 'pass the same driver name to both: files and CDI specs are named after it';
    throw invalid(`option metadata is for driver ${metadata.driver}, not ${driver}`, hint);
  }
  checkContracts(protoDir);
}

/**
 * Checks that the `.proto` files exist. They are loaded by the first call: without this check, a driver that lacks them would
 * start and then fail every call.
 * @throws KubeletPluginError `invalid-options`
 */
function checkContracts(protoDir: string | undefined): void {
  const files = [
    'plugin-registration.proto',
    ...draVersions.map((version) => `dra-${version}.proto`),
    ...healthVersions.map((version) => `dra-health-${version}.proto`),
  ];
  const missing = files.find((file) =>
    protoDir === undefined ? findProtoDir(file) === undefined : !existsSync(join(protoDir, file)),
  );
  if (missing === undefined) return;
  const hint = 'copy the folder proto of the package beside the bundled driver, or pass its path as protoDir';
  throw invalid(`there is no ${missing} ${protoDir === undefined ? 'beside the program' : `in ${protoDir}`}`, hint);
}

function invalid(message: string, hint?: string): KubeletPluginError {
  return new KubeletPluginError('invalid-options', message, { hint });
}
