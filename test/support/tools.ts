/** The programs that some tests run besides Node and a Redis: how each is found, and how it is got. */

import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { delimiter, join } from 'node:path';

export interface Tool {
  readonly name: string;
  /** The programs that are needed, or of which one is. */
  readonly programs: readonly string[];
  readonly need?: 'one';
  /** Where systems keep the programs when they do not put them on PATH. */
  readonly folders?: readonly string[];
  /** The environment variable that may name the folder of the programs. */
  readonly variable?: string;
  /** A command that succeeds only where the tool is whole. */
  readonly check?: readonly [program: string, ...args: string[]];
  readonly install: { readonly debian: string; readonly macOS: string };
  /** The start of the paths, below `test/`, of the test files that need it. */
  readonly tests: readonly string[];
}

/** Debian puts no program of PostgreSQL on PATH. */
const DEBIAN_POSTGRES = '/usr/lib/postgresql';

const GUARDS = 'adapters/fence/';

export const POSTGRES: Tool = {
  name: 'PostgreSQL',
  programs: ['initdb', 'postgres'],
  folders: versionsOf(DEBIAN_POSTGRES).map((version) => join(DEBIAN_POSTGRES, version, 'bin')),
  variable: 'HOLDFAST_POSTGRES',
  install: { debian: 'apt-get install postgresql', macOS: 'brew install postgresql' },
  tests: [
    GUARDS,
    'adapters/docstrings',
    'docs/api',
    'docs/examples.',
    'docs/fencing/',
    'docs/guide',
  ],
};

export const MARIADB: Tool = {
  name: 'MariaDB',
  programs: ['mariadb-install-db', 'mariadbd'],
  folders: ['/usr/sbin'],
  variable: 'HOLDFAST_MARIADB',
  install: { debian: 'apt-get install mariadb-server', macOS: 'brew install mariadb' },
  tests: [GUARDS],
};

export const PROMETHEUS: Tool = {
  name: 'Prometheus',
  programs: ['prometheus', 'promtool'],
  install: { debian: 'apt-get install prometheus', macOS: 'brew install prometheus' },
  tests: ['adapters/prometheus/monitoring'],
};

export const TMUX: Tool = {
  name: 'tmux',
  programs: ['tmux'],
  install: { debian: 'apt-get install tmux', macOS: 'brew install tmux' },
  tests: ['adapters/cli/completion', 'adapters/cli/terminal'],
};

export const PYTHON: Tool = {
  name: 'Python 3 with venv',
  programs: ['python3'],
  check: ['python3', '-c', 'import ensurepip, venv'],
  install: { debian: 'apt-get install python3-venv', macOS: 'brew install python' },
  tests: ['adapters/compat/redis-py'],
};

export const SHELLS: Tool = {
  name: 'zsh and fish',
  programs: ['zsh', 'fish'],
  install: { debian: 'apt-get install zsh fish', macOS: 'brew install zsh fish' },
  tests: ['adapters/cli/completion'],
};

export const CHROMIUM: Tool = {
  name: 'Chromium',
  programs: ['chromium', 'chromium-browser', 'google-chrome'],
  need: 'one',
  variable: 'HOLDFAST_CHROMIUM',
  install: {
    debian: 'apt-get install --no-install-recommends chromium',
    macOS: 'brew install --cask chromium',
  },
  tests: ['adapters/ui/page'],
};

const TOOLS = [POSTGRES, MARIADB, PROMETHEUS, TMUX, PYTHON, SHELLS, CHROMIUM];

/** The path of a program of the tool, by default of the first that is found. Throws how to get the tool if it is missing. */
export function pathOf(tool: Tool, program?: string): string {
  const names = program === undefined ? tool.programs : [program];
  const path = names.map((name) => find(tool, name)).find((found) => found !== undefined);
  if (path === undefined || isMissing(tool)) throw new Error(`this test needs ${howToGet(tool)}`);
  return path;
}

/** The tools that this machine lacks. */
export function missingTools(): Tool[] {
  return TOOLS.filter(isMissing);
}

function isMissing(tool: Tool): boolean {
  const absent = tool.programs.filter((program) => find(tool, program) === undefined);
  const allowed = tool.need === 'one' ? tool.programs.length - 1 : 0;
  return absent.length > allowed || !isWhole(tool);
}

/** Such as `tmux (Debian: apt-get install tmux; macOS: brew install tmux)`. */
export function howToGet({ name, install, variable }: Tool): string {
  const or = variable === undefined ? '' : `, or name the folder of its programs in ${variable}`;
  return `${name} (Debian: ${install.debian}; macOS: ${install.macOS}${or})`;
}

function find({ folders = [], variable }: Tool, program: string): string | undefined {
  const named = variable === undefined ? undefined : process.env[variable];
  const path = (process.env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== '');
  const searched = named === undefined ? [...path, ...folders] : [named];
  return searched.map((folder) => join(folder, program)).find((file) => existsSync(file));
}

function isWhole({ check }: Tool): boolean {
  if (check === undefined) return true;
  const [program, ...args] = check;
  return spawnSync(program, args, { stdio: 'ignore' }).status === 0;
}

/** The names of the folders of versions in `folder`, the newest first. */
function versionsOf(folder: string): string[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder).sort((a, b) => Number(b) - Number(a));
}
