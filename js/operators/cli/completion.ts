/** `holdfast completion`: scripts that let a shell complete commands, options and their values. */

import { Argument, type Command, type Option } from 'commander';
import { EXIT_CODES, Exit } from './exit.js';
import { helpText, print } from './terminal.js';

type Shell = 'bash' | 'fish' | 'zsh';

const HELP = `
Put the line for your shell into its start file:
  bash    source <(holdfast completion bash)        # ~/.bashrc
  zsh     source <(holdfast completion zsh)         # ~/.zshrc, below compinit
  fish    holdfast completion fish | source         # ~/.config/fish/config.fish

It completes commands, options and their values. Names of locks are not completed: a shell should connect to no server.

${EXIT_CODES}
Examples:
  holdfast completion bash > /etc/bash_completion.d/holdfast
`;

const WRITERS: Readonly<Record<Shell, (program: Command) => string>> = { bash, fish, zsh };

/** Adds the command. */
export function addCompletion(program: Command, end: (code: number) => void): void {
  program
    .command('completion')
    .summary('print a script that completes commands in a shell')
    .description('Print a script by which a shell completes commands and options.')
    .addArgument(new Argument('<shell>', 'the shell').choices(Object.keys(WRITERS)))
    .addHelpText('after', helpText(HELP))
    .action((shell: Shell) => {
      print(WRITERS[shell](program));
      end(Exit.Done);
    });
}

/** The kind of value that follows an option. */
function valueAfter({
  flags,
  argChoices,
}: Option): 'file' | 'nothing' | 'text' | readonly string[] {
  if (!flags.includes('<')) return 'nothing';
  return argChoices ?? (flags.includes('<file>') ? 'file' : 'text');
}

function optionsOf(command: Command): readonly Option[] {
  return command.createHelp().visibleOptions(command);
}

/** The values of the first argument, if there are only a few. */
function choicesOf(command: Command): readonly string[] {
  return command.registeredArguments[0]?.argChoices ?? [];
}

function flagsOf({ short, long }: Option): string[] {
  return [short, long].filter((flag) => flag !== undefined);
}

function bash({ commands }: Command): string {
  const all = commands.flatMap(optionsOf);
  const values = new Map(all.map((option) => [flagsOf(option).join('|'), option]));
  const cases = [...values].flatMap(([flags, option]) => {
    const value = valueAfter(option);
    if (value === 'nothing') return [];
    if (value === 'file')
      return [`    ${flags}) COMPREPLY=($(compgen -f -- "$current")); return ;;`];
    if (value === 'text') return [`    ${flags}) return ;;`];
    const words = value.join(' ');
    return [`    ${flags}) COMPREPLY=($(compgen -W '${words}' -- "$current")); return ;;`];
  });
  const words = commands.map((command) => {
    const own = [...optionsOf(command).flatMap(flagsOf), ...choicesOf(command)];
    return `    ${command.name()}) words='${own.join(' ')}' ;;`;
  });
  const names = commands.map((command) => command.name()).join(' ');
  return `_holdfast() {
  local current="\${COMP_WORDS[COMP_CWORD]}" previous="\${COMP_WORDS[COMP_CWORD-1]}" words word
  COMPREPLY=()
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [ "$word" = -- ]; then COMPREPLY=($(compgen -c -f -- "$current")); return; fi
  done
  case "$previous" in
${cases.join('\n')}
  esac
  words='${names} help --help --version'
  if [ "$COMP_CWORD" -gt 1 ]; then
    case "\${COMP_WORDS[1]}" in
${words.map((line) => `  ${line}`).join('\n')}
    help) words='${names}' ;;
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -F _holdfast holdfast`;
}

function zsh({ commands }: Command): string {
  const quoted = (text: string) => text.replace(/'/g, "'\\''");
  const escaped = (text: string) => quoted(text.replace(/[[\]:\\]/g, '\\$&'));
  const listed = commands.map((command) => `'${command.name()}:${escaped(command.summary())}'`);
  const cases = commands.map((command) => {
    const specs = optionsOf(command).flatMap((option) => {
      const value = valueAfter(option);
      const action = value === 'file' ? '_files' : `(${[value].flat().join(' ')})`;
      const after = { nothing: '', text: ':value: ' }[String(value)] ?? `:value:${action}`;
      return flagsOf(option).map((flag) => `'*${flag}[${escaped(option.description)}]${after}'`);
    });
    const choices = choicesOf(command);
    const first = choices.length > 0 ? [`'1:value:(${choices.join(' ')})'`] : ["'1:name:()'"];
    return `    ${command.name()}) _arguments -s ${[...specs, ...first].join(' ')} ;;`;
  });
  return `#compdef holdfast
_holdfast() {
  local -a known=(${listed.join(' ')})
  if (( CURRENT == 2 )); then
    _describe command known
    return
  fi
  local name=$words[2] dashes=\${words[(i)--]}
  # What follows -- is a command of its own.
  if (( dashes < CURRENT )); then
    (( CURRENT -= dashes ))
    shift $dashes words
    _normal
    return
  fi
  shift words
  (( CURRENT-- ))
  case $name in
${cases.join('\n')}
    help) _describe command known ;;
  esac
}
compdef _holdfast holdfast`;
}

function fish({ commands }: Command): string {
  const quoted = (text: string) => `'${text.replace(/['\\]/g, '\\$&')}'`;
  const lines = commands.flatMap((command) => {
    const name = command.name();
    const seen = `complete -c holdfast -n '__fish_seen_subcommand_from ${name}'`;
    const options = optionsOf(command).map((option) => {
      const value = valueAfter(option);
      const short = option.short === undefined ? '' : ` -s ${option.short.slice(1)}`;
      const long = option.long === undefined ? '' : ` -l ${option.long.slice(2)}`;
      const takes = { nothing: '', text: ' -x', file: ' -r -F' }[String(value)];
      const after = takes ?? ` -x -a '${[value].flat().join(' ')}'`;
      return `${seen}${short}${long}${after} -d ${quoted(option.description)}`;
    });
    const choices = choicesOf(command);
    const values = choices.length > 0 ? [`${seen} -a '${choices.join(' ')}'`] : [];
    const what = `-a ${name} -d ${quoted(command.summary())}`;
    return [`complete -c holdfast -n __fish_use_subcommand ${what}`, ...options, ...values];
  });
  return `function __holdfast_rest
  set -l words (commandline -opc) (commandline -ct)
  complete -C (string join ' ' -- $words[(math 1 + (contains -i -- -- $words))..-1])
end
complete -c holdfast -f
complete -c holdfast -n 'contains -- -- (commandline -opc)' -x -a '(__holdfast_rest)'
${lines.join('\n')}`;
}
