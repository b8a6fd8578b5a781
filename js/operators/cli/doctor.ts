/** `holdfast doctor`: checks whether servers are fit for locks, and says what to fix. */

import { randomUUID } from 'node:crypto';
import { type Command, Option } from 'commander';
import { LockTimeoutError } from '../../base/errors.js';
import { printable } from '../../base/printable.js';
import { checkTarget } from '../../connect/check-target.js';
import { connect } from '../../connect/connect.js';
import type { ServerAbilities } from '../../manager/stats.js';
import { type ServerSurvey, survey } from '../views/survey.js';
import { EXIT_CODES, Exit } from './exit.js';
import { type Finding, fields, judge, type Kind, QUESTIONS } from './judge.js';
import { type PlaceOptions, type Where, whereOf, withPlace, withSource } from './options.js';
import { judgeRights, questions, rights } from './rights.js';
import { helpText, type Paint, paint, print, printJson, wrapped } from './terminal.js';

interface DoctorOptions extends PlaceOptions {
  readonly aclUser?: string;
}

const HELP = `
It looks at the connection, version, role, eviction, persistence, clock and replicas of every server, at what
the ACL user may do, and acquires and releases a lock of its own.

${EXIT_CODES}
Examples:
  holdfast doctor --url rediss://10.0.0.1:6379 --ca ca.pem
  holdfast doctor --json | jq '.findings[] | select(.level != "ok")'
  holdfast doctor --acl-user app    # asked as an administrator about another user
`;

/** How long the trial waits in the queue, in ms. */
const TRIAL_WAIT_MS = 50;

const MARKS: Readonly<Record<Finding['level'], readonly [string, Paint]>> = {
  ok: ['ok', 'green'],
  warning: ['warning', 'yellow'],
  problem: ['PROBLEM', 'red'],
};

const MARK_WIDTH = 7;
const CHECK_WIDTH = 11;
const ADVICE_INDENT = 2 + MARK_WIDTH + 2 + CHECK_WIDTH + 2;

/** Adds the command. */
export function addDoctor(program: Command, end: (code: number) => void): void {
  const command = program
    .command('doctor')
    .summary('check whether the servers are fit for locks')
    .description('Check whether the servers are fit for locks, and say what to fix.')
    .addOption(
      new Option('--acl-user <name>', 'the user whose rights are checked (default: the login)'),
    );
  withPlace(command)
    .addHelpText('after', helpText(HELP))
    .action(async (options: DoctorOptions) => {
      end(await doctor(options));
    });
}

async function doctor(options: DoctorOptions): Promise<number> {
  const where = whereOf(options);
  const findings = await examine(where, options.aclUser);
  const ok = findings.every(({ level }) => level !== 'problem');
  if (options.json === true) printJson({ ok, findings });
  else print(page(where, findings));
  return ok ? Exit.Done : Exit.No;
}

async function examine(where: Where, aclUser: string | undefined): Promise<Finding[]> {
  const { target, options } = where;
  const { db, username, cluster, quorum } = checkTarget(target);
  const kind = { cluster: cluster !== null, quorum: quorum !== null };
  const named = options.username ?? username;
  const login = typeof named === 'string' ? named : 'default';
  const user = aclUser ?? login;
  const name = `holdfast:doctor:${randomUUID()}`;
  const { prefix = 'lock:' } = options;
  const needed = rights({ name, prefix, db, ...kind });
  const asked = [...QUESTIONS, ...questions(needed, user, user === login)];
  let surveys: ServerSurvey[];
  try {
    surveys = await survey(target, options, asked);
  } catch (error) {
    return [failure('connection', withSource(error, where.source))];
  }
  const findings = surveys.flatMap((each) => {
    const about = each.answers.slice(QUESTIONS.length);
    const allowed = each.failure === undefined ? judgeRights(needed, user, name, about) : [];
    return [...judge(each, kind), ...allowed].map((found) => ({ server: each.server, ...found }));
  });
  return [...findings, ...duplicates(surveys, kind), ...(await trial(where, name))];
}

/** Servers of a quorum that are the same one. */
function duplicates(surveys: readonly ServerSurvey[], { quorum }: Kind): Finding[] {
  if (!quorum) return [];
  const runs = surveys.map(({ answers }) => fields(answers[0]?.text ?? '').get('run_id'));
  const repeated = surveys.filter((_, i) => runs[i] !== undefined && runs.indexOf(runs[i]) !== i);
  return repeated.map(({ server }) => ({
    server,
    check: 'role',
    level: 'problem',
    message: 'it is the same server as another one of the quorum',
    advice: 'name each server once: the servers of a quorum must fail independently',
  }));
}

/** Acquires a lock as services do, waits for it in its queue, and releases it. */
async function trial({ target, options, source }: Where, name: string): Promise<Finding[]> {
  const findings: Finding[] = [];
  try {
    const locks = await connect(target, { ...options, ttl: 1_000 });
    locks.on('warning', ({ message }) => {
      findings.push({ server: null, check: 'trial', level: 'warning', message });
    });
    try {
      const began = performance.now();
      const lock = await locks.acquire(name);
      await lock.extend();
      const took = performance.now() - began;
      await locks.acquire(name, { wait: TRIAL_WAIT_MS }).catch(expectTimeout);
      await lock.release();
      findings.push(...locks.stats().servers.map(abilities));
      const message = `a lock was acquired and extended in ${took.toFixed(2)} ms, waited for, and released`;
      findings.push({ server: null, check: 'trial', level: 'ok', message });
    } finally {
      await locks.close();
    }
  } catch (error) {
    findings.push(failure('trial', withSource(error, source)));
  }
  return findings;
}

/** The abilities of a server that the trial found. */
function abilities(allowed: ServerAbilities): Finding {
  const { server, protocol, clock, pubsub, plainCommands, tracking, compareAndDelete } = allowed;
  const able = (is: boolean, what: string) => `${is ? '' : 'no '}${what}`;
  const message = [
    `RESP${protocol}${protocol === 2 ? ' (messages on a second connection)' : ''}`,
    able(clock, 'clock in scripts'),
    able(pubsub, 'messages'),
    able(plainCommands, 'plain commands'),
    tracking ? 'tracking' : 'no tracking (a lost lock is noticed with its renewal)',
    `compare-and-delete by ${compareAndDelete ?? 'script'}`,
  ].join(', ');
  return { server, check: 'abilities', level: 'ok', message };
}

function expectTimeout(error: unknown): void {
  if (!(error instanceof LockTimeoutError)) throw error;
}

function failure(check: string, error: unknown): Finding {
  return { server: null, check, level: 'problem', message: (error as Error).message };
}

function page({ label }: Where, findings: readonly Finding[]): string {
  const lines = [paint(process.stdout, 'bold', label)];
  let server: string | null | undefined;
  for (const finding of findings) {
    if (finding.server !== server) {
      server = finding.server;
      lines.push('', server ?? 'All together');
    }
    lines.push(...linesOf(finding));
  }
  const count = (level: Finding['level']) => findings.filter((each) => each.level === level).length;
  return [...lines, '', verdict(count('problem'), count('warning'))].join('\n');
}

function linesOf({ check, level, message, advice }: Finding): string[] {
  const [word, colour] = MARKS[level];
  const mark = paint(process.stdout, colour, word.padEnd(MARK_WIDTH));
  // Without its colours, which have no width.
  const said = wrapped(`${' '.repeat(ADVICE_INDENT)}${printable(message)}`, ADVICE_INDENT);
  const line = `  ${mark}  ${check.padEnd(CHECK_WIDTH)}  ${said.trimStart()}`;
  if (advice === undefined) return [line];
  return [line, wrapped(`${' '.repeat(ADVICE_INDENT)}→ ${advice}`, ADVICE_INDENT + 2)];
}

function verdict(problems: number, warnings: number): string {
  if (problems > 0)
    return paint(process.stdout, 'red', `${problems} to fix, ${warnings} to consider.`);
  if (warnings > 0) return `Fit for locks; ${warnings} to consider.`;
  return paint(process.stdout, 'green', 'Fit for locks.');
}
