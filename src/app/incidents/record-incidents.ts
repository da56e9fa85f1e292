import packageInfo from '../../../package.json' with { type: 'json' };
import type { NodePorts, NodeSettings } from '../../driver/ports.ts';
import type { Settings } from '../settings.ts';
import { incidentFormat } from './entry.ts';
import { IncidentFiles, type IncidentFilesOptions } from './incident-files.ts';
import { IncidentRing } from './incident-ring.ts';
import { Recorder } from './recorder.ts';

/**
 * The same ports, recorded: when something goes wrong, what has happened before and soon after is written to disk.
 * @param stack gets what is to be closed after the driver
 * @throws StateError
 */
export function recordIncidents(
  ports: NodePorts,
  settings: Settings & NodeSettings,
  stack: AsyncDisposableStack,
): NodePorts {
  const { clock, logger, now, disk } = ports;
  const { dataDir, driverName } = settings;
  const ring = new IncidentRing();
  const header: IncidentFilesOptions['header'] = {
    ...{ incident: incidentFormat, version: packageInfo.version, startedAt: now().toISOString(), settings },
    isGated: disk.gate.hook !== undefined,
  };
  const files = stack.use(new IncidentFiles({ dataDir, ring, header, clock, logger }));
  const onIncident: IncidentFiles['request'] = (reason, what) => files.request(reason, what);
  return new Recorder({ ring, driverName, clock, onIncident }).record(ports);
}
