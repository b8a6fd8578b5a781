/**
 * The programs that tests run besides Node: how each is found, how it is got, and which tests need it.
 *
 * A module that runs one declares it by {@link needs}, and a test needs what the modules declare that it loads. `npm test`
 * reads the declarations, leaves out the files that need what is missing, and names them. So a test that needs more than
 * the rest of its file has a file of its own.
 */

import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';

export interface Tool {
  readonly name: string;
  /** The programs that are needed, or of which one is. */
  readonly programs: readonly string[];
  readonly need?: 'one';
  /** Where systems keep the programs when they do not put them on PATH. */
  readonly folders?: readonly string[];
  /** The environment variable that may name the folder of the programs, or the one that is needed. */
  readonly variable?: string;
  /** A command that succeeds only where the tool is whole. */
  readonly check?: readonly [program: string, ...args: string[]];
  readonly install: { readonly debian: string; readonly macOS: string };
}

/** Debian puts no program of PostgreSQL on PATH. */
const DEBIAN_POSTGRES = '/usr/lib/postgresql';

const TOOLS = {
  redis: {
    name: 'Redis or Valkey',
    programs: ['redis-server', 'valkey-server'],
    need: 'one',
    variable: 'HOLDFAST_REDIS_SERVER',
    install: { debian: 'apt-get install redis-server', macOS: 'brew install redis' },
  },
  postgres: {
    name: 'PostgreSQL',
    programs: ['initdb', 'postgres'],
    folders: versionsOf(DEBIAN_POSTGRES).map((version) => join(DEBIAN_POSTGRES, version, 'bin')),
    variable: 'HOLDFAST_POSTGRES',
    install: { debian: 'apt-get install postgresql', macOS: 'brew install postgresql' },
  },
  mariadb: {
    name: 'MariaDB',
    programs: ['mariadb-install-db', 'mariadbd'],
    folders: ['/usr/sbin'],
    variable: 'HOLDFAST_MARIADB',
    install: { debian: 'apt-get install mariadb-server', macOS: 'brew install mariadb' },
  },
  prometheus: {
    name: 'Prometheus',
    programs: ['prometheus', 'promtool'],
    install: { debian: 'apt-get install prometheus', macOS: 'brew install prometheus' },
  },
  tmux: {
    name: 'tmux',
    programs: ['tmux'],
    install: { debian: 'apt-get install tmux', macOS: 'brew install tmux' },
  },
  shells: {
    name: 'zsh and fish',
    programs: ['zsh', 'fish'],
    install: { debian: 'apt-get install zsh fish', macOS: 'brew install zsh fish' },
  },
  chromium: {
    name: 'Chromium',
    programs: ['chromium', 'chromium-browser', 'google-chrome'],
    need: 'one',
    variable: 'HOLDFAST_CHROMIUM',
    install: {
      debian: 'apt-get install --no-install-recommends chromium',
      macOS: 'brew install --cask chromium',
    },
  },
  python: {
    name: 'Python 3 with venv',
    programs: ['python3'],
    check: ['python3', '-c', 'import ensurepip, venv'],
    install: { debian: 'apt-get install python3-venv', macOS: 'brew install python' },
  },
  openssl: {
    name: 'OpenSSL',
    programs: ['openssl'],
    install: { debian: 'apt-get install openssl', macOS: 'brew install openssl' },
  },
  compiler: {
    name: 'a C compiler and make',
    programs: ['cc', 'c++', 'make'],
    install: { debian: 'apt-get install build-essential', macOS: 'xcode-select --install' },
  },
  rust: {
    name: 'Rust',
    programs: ['cargo'],
    install: { debian: 'https://rustup.rs', macOS: 'https://rustup.rs' },
  },
} satisfies Record<string, Tool>;

/** The path of a program of a tool, by default of the first that is found. */
export type Finder = (program?: string) => string;

/**
 * Declares that this module, and every test that loads it, needs a tool. Throws how to get the tool if it is missing.
 *
 * @example
 * const postgres = needs('postgres');
 * spawn(postgres('initdb'), args);
 */
export function needs(name: keyof typeof TOOLS): Finder {
  const tool: Tool = TOOLS[name];
  if (isMissing(tool)) throw new Error(`this test needs ${howToGet(tool)}`);
  return (program) => {
    const names = program === undefined ? tool.programs : [program];
    const path = names.map((each) => find(tool, each)).find((found) => found !== undefined);
    if (path === undefined) throw new Error(`${tool.name} has no program ${program}`);
    return path;
  };
}

/** The tools that a compiled test file needs and this machine lacks. */
export function lackingFor(file: string): Tool[] {
  const needed = new Set(modulesOf(file).flatMap((module) => read(module).needs));
  return [...needed].map((name) => TOOLS[name]).filter(isMissing);
}

/** Such as `tmux (Debian: apt-get install tmux; macOS: brew install tmux)`. */
export function howToGet({ name, install, variable }: Tool): string {
  const or = variable === undefined ? '' : `, or say in ${variable} where it is`;
  return `${name} (Debian: ${install.debian}; macOS: ${install.macOS}${or})`;
}

/** A compiled module, the modules that it loads or runs as programs of their own, and those that these load. */
function modulesOf(file: string): string[] {
  const modules = new Set([file]);
  // A set also yields what is added to it meanwhile.
  for (const module of modules) {
    for (const loaded of read(module).loads) modules.add(loaded);
  }
  return [...modules];
}

interface Module {
  readonly loads: readonly string[];
  readonly needs: readonly (keyof typeof TOOLS)[];
}

const modules = new Map<string, Module>();

function read(file: string): Module {
  const known = modules.get(file);
  if (known !== undefined) return known;
  const code = readFileSync(file, 'utf8');
  const loads = code.matchAll(/\brequire\("(\.[^"]+\.js)"\)|\(__dirname, '([^']+\.js)'\)/g);
  const needed = code.matchAll(/\bneeds\)\('(\w+)'\)/g);
  const module = {
    loads: Array.from(loads, ([, loaded, run]) => join(dirname(file), loaded ?? run ?? '')),
    needs: Array.from(needed, ([, name]) => name as keyof typeof TOOLS),
  };
  modules.set(file, module);
  return module;
}

function isMissing(tool: Tool): boolean {
  const { name, programs, need, variable } = tool;
  const absent = programs.filter((program) => find(tool, program) === undefined);
  const missing = absent.length > (need === 'one' ? programs.length - 1 : 0) || !isWhole(tool);
  const place = placeOf(tool);
  if (missing && place !== undefined) throw new Error(`${variable} is ${place}: no ${name} there`);
  return missing;
}

/** Where the environment says that it is. */
function placeOf({ variable }: Tool): string | undefined {
  return (variable !== undefined && process.env[variable]) || undefined;
}

function find(tool: Tool, program: string): string | undefined {
  const place = placeOf(tool);
  if (place !== undefined) return [join(place, program), place].find(isFile);
  const { folders = [] } = tool;
  const path = (process.env['PATH'] ?? '').split(delimiter).filter((folder) => folder !== '');
  return [...path, ...folders].map((folder) => join(folder, program)).find(isFile);
}

function isFile(path: string): boolean {
  // Below a program stands nothing, of which `statSync` also makes an error.
  return existsSync(path) && statSync(path).isFile();
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
