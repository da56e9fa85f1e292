import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type ValidateOptions, validateFiles } from '../../../src/cli/validate.ts';
import { formatValidation } from '../../../src/cli/validate-reports.ts';
import { testDriver } from '../../doubles/objects.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { plainTerminal } from './plain-terminal.ts';

export const options: ValidateOptions = { driverName: testDriver, openClaimFields: [] };

/** Validates files with these texts, and gives the lines of the result; they are named by their number. */
export async function linesFor(texts: string[], more: Partial<ValidateOptions> = {}): Promise<string[]> {
  using dir = tempDir();
  const files = texts.map((text, index) => {
    const path = join(dir.path, `${index}`);
    writeFileSync(path, text);
    return path;
  });
  const text = formatValidation(plainTerminal, await validateFiles(files, { ...options, ...more }));
  return text.replaceAll(`${dir.path}/`, '').trimEnd().split('\n');
}

export const config = (fields: string, driver = testDriver) =>
  `{ opaque: { driver: ${driver}, parameters: { apiVersion: netdra.dev/v1alpha1, kind: VFConfig, ${fields} } } }`;
export const deviceClass = (name: string, fields: string) => `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: { name: ${name} }
spec:
  config:
    - ${config(fields)}
`;
export const claim = (className: string, fields: string, request = `exactly: { deviceClassName: ${className} }`) => `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: { name: fast-net, namespace: apps }
spec:
  devices:
    requests:
      - { name: cpu, exactly: { deviceClassName: dra.cpu } }
      - name: vf
        ${request}
    config:
      - requests: [vf]
        opaque:
          driver: ${testDriver}
          parameters:
            apiVersion: netdra.dev/v1alpha1
            kind: VFConfig
            ${fields}
`;
