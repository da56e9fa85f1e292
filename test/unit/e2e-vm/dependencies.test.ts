import { describe, expect, it } from 'vitest';
import { closeOverDependencies, parseAptDepends } from '../../../scripts/packages/dependencies.ts';

/** As apt-cache prints it: alternatives, a virtual package with who provides it, and a package with others in its place. */
const printed = `app
  Depends: libc
 |Depends: mail-a
  Depends: mail-b
  Depends: <shell>
    shell-a
    shell-b
  PreDepends: base
    base-replacement
libc
mail-a
  Depends: libc
mail-b
shell-a
shell-b
<shell>
base
  Depends: app
`;

describe('dependencies of packages', () => {
  const graph = parseAptDepends(printed);

  it('are read as groups, of which one package will do', () => {
    expect(graph.get('app')).toEqual([['libc'], ['mail-a', 'mail-b'], ['shell-a', 'shell-b'], ['base']]);
    expect(graph.get('mail-a')).toEqual([['libc']]);
    expect(graph.get('libc')).toEqual([]);
  });

  it('are closed over, the first of several', () => {
    expect(closeOverDependencies(graph, ['app'], [])).toEqual(['app', 'base', 'libc', 'mail-a', 'shell-a']);
  });

  it('take of several one that is there anyway', () => {
    expect(closeOverDependencies(graph, ['app', 'mail-b', 'shell-b'], [])).toEqual(
      ['app', 'base', 'libc', 'mail-b', 'shell-b'].sort(),
    );
  });

  it('leave out what is not wanted, with what only that needs', () => {
    expect(closeOverDependencies(graph, ['mail-a'], ['libc'])).toEqual(['mail-a']);
    expect(closeOverDependencies(graph, ['app'], ['mail-a'])).not.toContain('mail-b');
  });
});
