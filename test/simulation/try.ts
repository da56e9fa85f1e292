import { Disk } from './disk.ts';
import { runSchedule, Workplace } from './schedule.ts';
import { Tape } from './tape.ts';

const [from = '1', count = '1', traced] = process.argv.slice(2);
using disk = new Disk();
using place = new Workplace(`/dev/shm/netdra-sim-${process.pid}`, disk);
let steps = 0;
const rules = new Map<string, number[]>();
for (let seed = Number(from); seed < Number(from) + Number(count); seed++) {
  const outcome = await runSchedule(Tape.ofSeed(seed), place, traced !== undefined);
  steps += outcome.steps;
  if (traced)
    for (const [at, who, what] of outcome.trace)
      process.stdout.write(`${at.toFixed(2).padStart(12)} ${who.padEnd(18)} ${what}\n`);
  if (outcome.violation) {
    const k = outcome.violation.message.replace(/\d+/g, '#').slice(0, traced ? 2000 : 110);
    rules.set(k, [...(rules.get(k) ?? []), seed]);
  }
}
const { user, system } = process.cpuUsage();
const s = (user + system) / 1e6;
process.stdout.write(
  `${count} schedules, ${(Number(count) / s).toFixed(1)}/CPU-s, ${(steps / Number(count)).toFixed(0)} steps each\n`,
);
for (const [rule, seeds] of [...rules].sort((a, b) => b[1].length - a[1].length))
  process.stdout.write(`${seeds.length} ${rule} seeds ${seeds.slice(0, 5)}\n`);
