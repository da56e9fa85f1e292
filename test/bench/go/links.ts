import { run } from '../../../scripts/packages/run.ts';

/** Creates links like simulated VFs: one end of a veth pair each, the other one at a bridge. @returns their names */
export function makeLinks(count: number): string[] {
  run('ip', ['link', 'add', 'gobridge', 'type', 'bridge']);
  run('ip', ['link', 'set', 'gobridge', 'up']);
  return Array.from({ length: count }, (_, index) => {
    const [name, peer] = [`golink${index}`, `gopeer${index}`];
    run('ip', ['link', 'add', name, 'type', 'veth', 'peer', 'name', peer]);
    run('ip', ['link', 'set', peer, 'master', 'gobridge', 'up']);
    return name;
  });
}
