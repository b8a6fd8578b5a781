#!/usr/bin/env node
/** `holdfast`: locks for operators, shell scripts and cron. Each command has a file of its own. */

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Command, CommanderError } from 'commander';
import { addDoctor } from './doctor.js';
import { EXIT_CODES, Exit, exitCodeOf, report, withoutLogin } from './exit.js';
import { addLs } from './ls.js';
import { addRelease } from './release.js';
import { addRun } from './run.js';
import { addWatch } from './watch.js';

const HELP = `
Environment:
  HOLDFAST_URL, REDIS_URL       the server, unless an option names one
  HOLDFAST_USERNAME, HOLDFAST_PASSWORD
                                the login: better here than in a URL, which \`ps\` may show
  HOLDFAST_SENTINEL_USERNAME, HOLDFAST_SENTINEL_PASSWORD
                                the login of the Sentinels
  NO_COLOR                      no colours

${EXIT_CODES}
Examples:
  holdfast run nightly --if-available --at-least 5m -E 0 -- ./nightly.sh
  holdfast ls 'item:*'
  holdfast watch
  holdfast doctor --url redis://10.0.0.1:6379
  holdfast help run
`;

function version(): string {
  const manifest = readFileSync(join(__dirname, '..', '..', 'package.json'), 'utf8');
  return (JSON.parse(manifest) as { version: string }).version;
}

/**
 * Not by running out of work: a lock that is to be kept would be released on that way. What was written comes
 * first: of a long list the reader at the other end of a pipe may not have taken all yet.
 */
function end(code: number): void {
  process.stdout.write('', () => process.exit(code));
}

async function main(): Promise<void> {
  const program = new Command('holdfast');
  program
    .description('Distributed locks in Redis, for operators, shell scripts and cron.')
    .version(version())
    .exitOverride()
    // What is wrong with the arguments is reported like all else.
    .configureOutput({ outputError: () => {} })
    .addHelpText('after', HELP);
  for (const add of [addRun, addLs, addWatch, addRelease, addDoctor]) add(program, end);
  // The words of a command that runs under a lock are its own.
  const [ours] = process.argv.join('\0').split('\0--\0', 1);
  try {
    await program.parseAsync();
  } catch (error) {
    const code = exitCodeOf(error);
    if (code !== Exit.Done && !isHelp(error))
      report(error, ours?.split('\0').includes('--json') === true);
    end(code);
  }
}

/** Whether no command was named: all that there is to say to that is the help. */
function isHelp(error: unknown): boolean {
  return error instanceof CommanderError && error.code === 'commander.help';
}

/** The arguments as `ps` may show them, from here on: without what may be a login. */
function title(): string {
  return ['holdfast', ...process.argv.slice(2).map(withoutLogin)].join(' ');
}

// Whoever read has read enough, as `head` has; and a lost word is no reason to drop a lock.
process.stdout.on('error', () => process.exit(Exit.Done));
process.stderr.on('error', () => {});
process.title = title();
void main();
