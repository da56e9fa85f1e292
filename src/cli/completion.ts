import type { Command, Option } from 'commander';

export const shells = ['bash', 'zsh', 'fish', 'kubectl'] as const;
export type Shell = (typeof shells)[number];

export interface Completions {
  found: { value: string; description: string }[];
  /** Whether a file name is possible, too. */
  isFile: boolean;
}

/**
 * Returns the completions of the last word.
 * @param words words after the program's name; bash splits `--name=value` at the `=`
 */
export function completionsOf(program: Command, words: readonly string[]): Completions {
  const typed = [...words];
  let last = typed.pop() ?? '';
  const command = program.commands.find((each) => each.name() === typed.find((word) => !word.startsWith('-')));
  if (command === undefined)
    return { found: startingWith(last, [...commandsOf(program), ...optionsOf(program)]), isFile: false };
  let prefix = '';
  const [, name, value] = /^(--[^=]+)=(.*)$/.exec(last) ?? [];
  if (name !== undefined) {
    typed.push(name);
    prefix = `${name}=`;
    last = value ?? '';
  } else if (last === '=') {
    last = '';
  } else if (typed.at(-1) === '=') {
    typed.pop();
  }
  const option = command.options.find((each) => [each.short, each.long].includes(typed.at(-1)) && takesValue(each));
  if (option !== undefined) {
    const choices = (option.argChoices ?? []).map((choice) => ({ value: prefix + choice, description: '' }));
    return { found: startingWith(prefix + last, choices), isFile: choices.length === 0 };
  }
  if (last.startsWith('-')) return { found: startingWith(last, optionsOf(command)), isFile: false };
  const choices = command.registeredArguments.flatMap(({ argChoices = [] }) => argChoices);
  const takesFile = command.registeredArguments.some((each) => /file|path/.test(each.name()));
  return {
    found: startingWith(
      last,
      choices.map((choice) => ({ value: choice, description: '' })),
    ),
    isFile: takesFile,
  };
}

const takesValue = (option: Option) => option.required || option.optional;

function commandsOf(program: Command): Completions['found'] {
  return program.commands.map((each) => ({ value: each.name(), description: each.description() }));
}

function optionsOf(command: Command): Completions['found'] {
  const options = command.createHelp().visibleOptions(command);
  return options.flatMap(({ long, description }) => (long ? [{ value: long, description }] : []));
}

function startingWith(text: string, all: Completions['found']): Completions['found'] {
  // For an empty word, returns commands and arguments only; options follow after a typed dash.
  return all.filter(({ value }) => value.startsWith(text) && (text !== '' || !value.startsWith('-')));
}

/**
 * Formats each completion as a line, with its description after a tab. The last line says whether file names are possible
 * (`:0`) or not (`:4`).
 * Source: cobra's `__complete`, which kubectl expects of a plugin's `kubectl_complete-` program.
 */
export function formatCompletions({ found, isFile }: Completions): string {
  const lines = found.map(({ value, description }) => (description === '' ? value : `${value}\t${description}`));
  return [...lines, isFile ? ':0' : ':4'].map((line) => `${line}\n`).join('');
}

/** Scripts by shell: code for the shell's start-up file; for `kubectl`, the program `kubectl_complete-netdra`. */
export const completionScripts: Record<Shell, string> = {
  bash: `_netdra() {
  local lines IFS=$'\\n'
  mapfile -t lines < <(netdra completion bash -- "\${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  [ "\${#lines[@]}" -gt 0 ] || return
  [ "\${lines[-1]}" = :0 ] && compopt -o default
  unset 'lines[-1]'
  COMPREPLY=("\${lines[@]%%$'\\t'*}")
}
complete -F _netdra netdra
`,
  zsh: `#compdef netdra
_netdra() {
  local -a lines found
  local line
  lines=("\${(@f)$(netdra completion zsh -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  for line in "\${(@)lines[1,-2]}"; do found+=("\${line/$'\\t'/:}"); done
  (( \${#found} )) && _describe netdra found
  [[ \${lines[-1]} == :0 ]] && _files
}
compdef _netdra netdra
`,
  fish: `function __netdra_complete
  set -l words (commandline -opc)
  netdra completion fish -- $words[2..] (commandline -ct) 2>/dev/null | string match -v ':*'
end
complete -c netdra -a '(__netdra_complete)'
`,
  kubectl: `#!/bin/sh
exec kubectl netdra completion kubectl -- "$@"
`,
};
