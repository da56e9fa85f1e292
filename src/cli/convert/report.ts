import type { FindPlace, TextPlace } from '../../driver/api/yaml-places.ts';
import { printable } from '../../lib/printable.ts';
import type { Terminal } from '../terminal.ts';

/** An object of another stack in an input file. */
export interface InputObject {
  file: string;
  placeOf: FindPlace;
  /** Path of the object in its YAML document, for example an item of a list. */
  at: readonly PropertyKey[];
  kind: string;
  name: string;
  namespace: string | undefined;
  value: Record<string, unknown>;
}

/** A remark on a field of the input. */
export interface ConversionRemark extends TextPlace {
  level: 'lost' | 'note';
  file: string;
  /** `SriovNetwork sriov/fast-net`. */
  object: string;
  /** Path of the field, such as `spec.linkState`; `object` for the whole object. */
  field: string;
  /** Reason why the field was not converted, or a description of its conversion. */
  message: string;
  /** Remedy for the user; absent for notes. */
  todo?: string;
}

/** Collects faults and notes, in the order of the input. */
export class ConversionReport {
  readonly remarks: ConversionRemark[] = [];

  lost(of: InputObject, path: readonly PropertyKey[], message: string, todo: string): void {
    this.remarks.push({ level: 'lost', ...placeOf(of, path), message, todo });
  }

  note(of: InputObject, path: readonly PropertyKey[], message: string): void {
    this.remarks.push({ level: 'note', ...placeOf(of, path), message });
  }

  get isComplete(): boolean {
    return !this.remarks.some(({ level }) => level === 'lost');
  }
}

export function nameOf({ kind, name, namespace }: InputObject): string {
  return printable(`${kind} ${namespace === undefined ? '' : `${namespace}/`}${name}`, 600);
}

function placeOf(of: InputObject, path: readonly PropertyKey[]) {
  const { file, at } = of;
  return {
    file,
    ...of.placeOf([...at, ...path]),
    object: nameOf(of),
    field: printable(path.map(String).join('.') || 'object', 600),
  };
}

/** Formats remarks as lines: `file:line:column: kind name: field: message; remedy`. */
export function formatRemarks(terminal: Terminal, remarks: readonly ConversionRemark[]): string {
  return remarks
    .map(({ level, file, line, column, object, field, message, todo }) => {
      const place = terminal.style('bold', `${file}:${line}:${column}`);
      const what =
        level === 'lost'
          ? `${terminal.style('red', field)}: not converted: ${message}: ${todo}`
          : `${terminal.style('yellow', field)}: note: ${message}`;
      return `${place}: ${object}: ${what}\n`;
    })
    .join('');
}
