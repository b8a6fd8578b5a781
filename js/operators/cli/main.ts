#!/usr/bin/env node
/** `holdfast`: locks for operators, shell scripts and cron. Each command has a file of its own. */

import { Command, CommanderError } from 'commander';
import { addCompletion } from './completion.js';
import { addDoctor } from './doctor.js';
import { EXIT_CODES, Exit, exitCodeOf, report, withoutLogin } from './exit.js';
import { addFenceTable } from './fence-table.js';
import { addLead } from './lead.js';
import { addLs } from './ls.js';
import { addMigrate } from './migrate.js';
import { addRelease } from './release.js';
import { addRun } from './run.js';
import { helpText } from './terminal.js';
import { addUi } from './ui.js';
import { version } from './version.js';
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
  holdfast lead scheduler -- node scheduler.js
  holdfast ls 'item:*'
  holdfast watch
  holdfast ui
  holdfast doctor --url redis://10.0.0.1:6379
  holdfast migrate src
  holdfast help run
`;

const COMMANDS = [
  addRun,
  addLead,
  addLs,
  addWatch,
  addUi,
  addRelease,
  addDoctor,
  addFenceTable,
  addMigrate,
  addCompletion,
];

/**
 * Exits at once: if the event loop ran empty instead, a lock that is left to expire would be released. Waits for
 * the output first: the reader of a pipe may not have taken all of a long list yet.
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
    // Errors in the arguments are reported like all others.
    .configureOutput({ outputError: () => {} })
    .addHelpText('after', helpText(HELP));
  for (const add of COMMANDS) add(program, end);
  // The words after -- belong to the command that runs under the lock.
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

/** Whether the error is a missing command, which the help answers. */
function isHelp(error: unknown): boolean {
  return error instanceof CommanderError && error.code === 'commander.help';
}

/** The title of the process for `ps`: the arguments without what may be a login. */
function title(): string {
  return ['holdfast', ...process.argv.slice(2).map(withoutLogin)].join(' ');
}

// A reader such as `head` may close the pipe early, and a lost message is no reason to drop a lock.
process.stdout.on('error', () => process.exit(Exit.Done));
process.stderr.on('error', () => {});
process.title = title();
void main();
