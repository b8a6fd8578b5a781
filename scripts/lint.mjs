// Format, lints and types of everything. Stops at the first failure.

import { spawnSync } from 'node:child_process';

const JUDGE = ['--manifest-path', 'tools/judge/Cargo.toml'];
const JUDGE_TARGET = ['--target-dir', 'target/judge'];

const STEPS = [
  ['format of the Rust code', 'cargo', 'fmt', '--check'],
  // Without features the protocol must compile alone: no clock, no network, no Node.
  ['the protocol alone', 'cargo', 'clippy', '--no-default-features', '--', '-D', 'warnings'],
  ['lints of the Rust code', 'cargo', 'clippy', '--all-targets', '--', '-D', 'warnings'],
  ['format of the judge', 'cargo', 'fmt', '--check', ...JUDGE],
  [
    'lints of the judge',
    'cargo',
    'clippy',
    ...JUDGE,
    ...JUDGE_TARGET,
    '--all-targets',
    '--',
    '-D',
    'warnings',
  ],
  ['docs of the Rust code', 'cargo', 'doc', '--no-deps', '--quiet'],
  ['format and lints of the TypeScript code', 'npx', 'biome', 'check', '--error-on-warnings'],
  ['types', 'npm', 'run', '--silent', 'build:js'],
  ['workflows', 'node', 'scripts/workflows.mjs'],
  ['house rules', 'node', 'scripts/house-rules.mjs'],
];

for (const [what, program, ...args] of STEPS) {
  console.log(`── ${what}: ${program} ${args.join(' ')}`);
  const env = { ...process.env, RUSTDOCFLAGS: '-D warnings' };
  const { status } = spawnSync(program, args, { stdio: 'inherit', env });
  if (status !== 0) {
    console.error(`✗ ${what}`);
    process.exit(status ?? 1);
  }
}
console.log('✓ format, lints and types');
