// The gate before every commit: `npm run check`. A step that has passed is not run again until a file that it reads changes.
//
//   node scripts/check.mjs          format, lints, types and unit tests
//   node scripts/check.mjs --lint   all but the unit tests
//
// Stops at the first failure.

import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const TOOLS = ['judge', 'mutants'];
const WARNINGS = ['--', '-D', 'warnings'];

const RUST = /^(src|fuzz|\.cargo)\/|^(Cargo\.(toml|lock)|build\.rs|(clippy|rustfmt)\.toml)$/;
const OF_TOOLS = /^(tools|\.cargo)\/|^(clippy|rustfmt)\.toml$/;
const SCRIPTS = /\.(m?[jt]s|jsonc?|css|html)$/;
const WORKFLOWS = /^(\.github|scripts)\//;
const EVERYTHING = /./;

/** What it is, the files that it reads, and its command. */
const LINTS = [
  ['format of the Rust code', RUST, 'cargo', 'fmt', '--check'],
  // Without features the protocol must compile alone: no clock, no network, no Node.
  ['the protocol alone', RUST, 'cargo', 'clippy', '--no-default-features', ...WARNINGS],
  ['lints of the Rust code', RUST, 'cargo', 'clippy', '--all-targets', ...WARNINGS],
  ...TOOLS.flatMap(lintsOfTool),
  ['docs of the Rust code', RUST, 'cargo', 'doc', '--no-deps', '--quiet'],
  [
    'format and lints of the TypeScript code',
    SCRIPTS,
    'npx',
    'biome',
    'check',
    '--error-on-warnings',
  ],
  ['types', SCRIPTS, 'npm', 'run', '--silent', 'build:js'],
  ['workflows', WORKFLOWS, 'node', 'scripts/workflows.mjs'],
  ['house rules', EVERYTHING, 'node', 'scripts/house-rules.mjs'],
  ['mistakes that can be made', EVERYTHING, 'node', 'scripts/mutants.mjs', '--applies'],
];

const TESTS = [
  ['unit tests of the core', RUST, 'npm', 'run', '--silent', 'test:unit'],
  ['the store in the process, with Lua 5.4', RUST, 'npm', 'run', '--silent', 'test:lua54'],
];

const root = join(import.meta.dirname, '..');
const passed = join(root, 'target', 'passed');
const env = { ...process.env, RUSTDOCFLAGS: '-D warnings' };
const listed = ['ls-files', '--cached', '--others', '--exclude-standard'];
const files = execFileSync('git', listed, { cwd: root, encoding: 'utf8' }).split('\n');
const tools = spawnSync('rustc', ['--version'], { encoding: 'utf8' }).stdout + process.version;

mkdirSync(passed, { recursive: true });
const steps = process.argv.includes('--lint') ? LINTS : [...LINTS, ...TESTS];
for (const [what, reads, program, ...args] of steps) {
  const stamp = join(passed, what.replaceAll(/\W+/g, '-'));
  const digest = digestOf(reads, [program, ...args]);
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === digest) {
    console.log(`── ${what}: passed before, and nothing has changed since`);
    continue;
  }
  console.log(`── ${what}: ${program} ${args.join(' ')}`);
  const { status } = spawnSync(program, args, { cwd: root, stdio: 'inherit', env });
  if (status !== 0) {
    console.error(`✗ ${what}`);
    process.exit(status ?? 1);
  }
  writeFileSync(stamp, digest);
}
console.log('✓ all passed');

/** Stands for a command, the tools and the contents of the files that it reads. */
function digestOf(reads, command) {
  const hash = createHash('sha256').update(JSON.stringify([tools, command]));
  for (const file of files) {
    const path = join(root, file);
    if (!reads.test(file) || !existsSync(path)) continue;
    hash.update(`${file}\0`).update(readFileSync(path)).update('\0');
  }
  return hash.digest('hex');
}

/** Each tool is a crate of its own. */
function lintsOfTool(tool) {
  const manifest = ['--manifest-path', `tools/${tool}/Cargo.toml`];
  const target = ['--target-dir', 'target/judge', '--all-targets'];
  return [
    [`format of tools/${tool}`, OF_TOOLS, 'cargo', 'fmt', '--check', ...manifest],
    [`lints of tools/${tool}`, OF_TOOLS, 'cargo', 'clippy', ...manifest, ...target, ...WARNINGS],
  ];
}
