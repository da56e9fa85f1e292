import type { Terminal } from './terminal.ts';
import type { FileFault, Validation } from './validate.ts';

/** Returns whether objects were checked and none has a fault. */
export function isValid({ checked, faults }: Validation): boolean {
  return checked > 0 && faults.length === 0;
}

/** Formats the result of a validation for people. */
export function formatValidation(terminal: Terminal, { checked, faults, notes }: Validation): string {
  const lines = faults.map(({ file, line, column, field, message }) => {
    return `${terminal.style('bold', `${file}:${line}:${column}`)}: ${terminal.style('red', field)}: ${message}\n`;
  });
  const remarks = notes.map((note) => `${terminal.style('yellow', 'note:')} ${note}\n`);
  return [...lines, ...remarks, `${checked} objects checked, ${faults.length} faults\n`].join('');
}

/**
 * Formats the result of a validation as annotations of GitHub Actions:
 * https://docs.github.com/actions/reference/workflow-commands-for-github-actions. Notes become notices without a place.
 */
export function formatGithub({ faults, notes }: Validation): string {
  const lines = faults.map(({ file, line, column, field, message }) => {
    const place = `file=${property(file)},line=${line},col=${column}`;
    return `::error ${place},title=netdra validate::${data(`${field}: ${message}`)}\n`;
  });
  return [...lines, ...notes.map((note) => `::notice title=netdra validate::${data(note)}\n`)].join('');
}

const data = (text: string) => text.replaceAll('%', '%25').replaceAll('\r', '%0D').replaceAll('\n', '%0A');
const property = (text: string) => data(text).replaceAll(':', '%3A').replaceAll(',', '%2C');

const ruleId = 'netdra-validate';

/** Returns the result of a validation as SARIF 2.1.0 for code scanning: https://docs.oasis-open.org/sarif/sarif/v2.1.0. */
export function sarifOf({ faults, notes }: Validation, version: string): object {
  const driver = {
    name: 'netdra',
    version,
    rules: [{ id: ruleId, shortDescription: { text: 'The driver or the API server would refuse this object.' } }],
  };
  return {
    $schema: 'https://json.schemastore.org/sarif-2.1.0.json',
    version: '2.1.0',
    runs: [
      {
        tool: { driver },
        columnKind: 'utf16CodeUnits',
        results: faults.map(resultOf),
        invocations: [
          {
            executionSuccessful: true,
            toolExecutionNotifications: notes.map((text) => ({ level: 'note', message: { text } })),
          },
        ],
      },
    ],
  };
}

function resultOf({ file, line, column, field, message }: FileFault): object {
  const region = { startLine: line, startColumn: column };
  // A relative path stays relative; `-` stands for standard input.
  const artifactLocation = { uri: encodeURI(file) };
  return {
    ruleId,
    level: 'error',
    message: { text: `${field}: ${message}` },
    locations: [{ physicalLocation: { artifactLocation, region } }],
  };
}
