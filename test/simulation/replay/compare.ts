import type { IncidentEntry } from '../../../src/app/incidents/entry.ts';

/** By subject, in order: what the driver has answered about it, and where it has put it. */
export type Answers = Map<string, string[]>;

/** @param names of the recording, by UID of a claim, id of a sandbox, or PCI address */
export function answersOf(entries: readonly IncidentEntry[], names: ReadonlyMap<string, string>): Answers {
  const answers: Answers = new Map();
  const nameOf = (id: string) => names.get(id) ?? id;
  const add = (subject: string, what: string) => answers.set(subject, [...(answers.get(subject) ?? []), what]);
  const calls = new Map<number, { what: string; ids: string[]; isWhole: boolean }>();
  for (const entry of entries) {
    if (entry.is === 'prepare' || entry.is === 'unprepare') {
      calls.set(entry.call, { what: entry.is, ids: entry.claims.map(({ uid }) => uid), isWhole: false });
    } else if ('sandbox' in entry) {
      calls.set(entry.call, { what: entry.is, ids: [entry.sandbox.id], isWhole: true });
    } else if (entry.is === 'answer') {
      const { what, ids, isWhole } = calls.get(entry.call) ?? { what: '', ids: [], isWhole: true };
      for (const id of ids) {
        const text = entry.failed?.[isWhole ? '' : id] ?? entry.failed?.[''];
        add(
          `${isWhole ? 'sandbox' : 'claim'} ${nameOf(id)}`,
          text === undefined ? `${what} done` : `${what} refused: ${text}`,
        );
      }
    } else if (entry.is === 'placed') {
      const where = entry.sandboxId === undefined ? 'no sandbox' : `sandbox ${nameOf(entry.sandboxId)}`;
      const last = answers.get(`VFs of ${nameOf(entry.claimUid)}`)?.at(-1);
      // With each step of an attachment it is stored again.
      if (last !== `in ${where}`) add(`VFs of ${nameOf(entry.claimUid)}`, `in ${where}`);
    }
  }
  return answers;
}

/**
 * @param claimUids of those that are played: pods without a claim of the driver are not
 * @param isWhole whether the end of the second is where the first ends
 */
export function differences(
  recorded: Answers,
  played: Answers,
  claimUids: readonly string[],
  isWhole: boolean,
): string[] {
  return [...recorded].flatMap(([subject, before]) => {
    const now = played.get(subject) ?? (claimUids.some((uid) => subject.endsWith(` ${uid}`)) ? [] : undefined);
    if (now === undefined) return [];
    const index = before.findIndex((what, at) => outcomeOf(what) !== outcomeOf(now[at] ?? ''));
    if (index === -1 || (!isWhole && index >= now.length)) return [];
    return [`${subject}: ${now[index] ?? 'nothing'}; recorded: ${before[index]}`];
  });
}

/** Texts of errors may differ. */
function outcomeOf(what: string): string {
  return what.replace(/ refused: .*/s, ' refused');
}
