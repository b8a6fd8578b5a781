/** Options that several commands share, and the parsers of their values. */

import { readFileSync } from 'node:fs';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { isUnreachable } from '../../base/errors.js';
import { readDuration } from '../../base/time.js';
import { checkTarget, DEFAULT_URL, isDefaultTarget } from '../../connect/check-target.js';
import { connect, WAIT_ADVICE } from '../../connect/connect.js';
import type { ConnectOptions } from '../../connect/options.js';
import type { ConnectTarget } from '../../connect/target.js';
import type { TlsOptions } from '../../connect/tls.js';
import type { LockManager } from '../../manager/manager.js';
import { say, UsageError } from './exit.js';

/** The options of every command. */
export interface PlaceOptions {
  readonly url?: string;
  readonly sentinel?: string[];
  readonly master?: string;
  readonly cluster?: string[];
  readonly quorum?: string[];
  readonly longestLease?: number;
  readonly prefix?: string;
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  readonly json?: boolean;
}

/** The target of the locks, and the options of the connection. */
export interface Where {
  readonly target: ConnectTarget | undefined;
  readonly options: ConnectOptions;
  /** The target's name for people, without login. */
  readonly label: string;
  /** Which option or variable named the target, or that none did: for the error of a server that cannot be reached. */
  readonly source: string;
}

/** The default `ttl` of `connect`. */
const LONGEST_LEASE_MS = 10_000;

/** Reads a length of time such as `30s`, in ms. */
export function duration(text: string): number {
  const ms = readDuration(text);
  if (ms !== undefined) return ms;
  throw new InvalidArgumentError('Give a time with a unit: 500ms, 30s, 2m or 1h.');
}

/** Reads a whole number from `least` to `most`. */
export function whole(least: number, most: number): (text: string) => number {
  return (text) => {
    const number = /^\d{1,16}$/.test(text) ? Number(text) : Number.NaN;
    if (number >= least && number <= most) return number;
    throw new InvalidArgumentError(`Give a whole number from ${least} to ${most}.`);
  };
}

const collect = (url: string, before: string[] = []): string[] => [...before, url];

/** Adds the options that name the servers. */
export function withPlace(command: Command): Command {
  return command
    .optionsGroup('Where the locks are:')
    .option('--url <url>', 'the server (default: HOLDFAST_URL, REDIS_URL, redis://127.0.0.1:6379)')
    .addOption(new Option('--sentinel <url>', 'a Sentinel; one option for each').argParser(collect))
    .option('--master <name>', 'the name of the master at the Sentinels')
    .addOption(
      new Option('--cluster <url>', 'a server of a Cluster; one option for each').argParser(
        collect,
      ),
    )
    .addOption(
      new Option('--quorum <url>', 'a server of a quorum; one option for each').argParser(collect),
    )
    .option(
      '--longest-lease <time>',
      'with --quorum: the longest lease of any client (default: 10s)',
      duration,
    )
    .option('--prefix <text>', 'the beginning of every key in Redis (default: "lock:")')
    .option('--ca <file>', 'TLS: the CA to trust, for rediss:// URLs')
    .option('--cert <file>', "TLS: this client's certificate")
    .option('--key <file>', 'TLS: the key of the certificate')
    .optionsGroup('Options:')
    .option('--json', 'write JSON, also for errors');
}

/**
 * Reads the target, and checks everything that can be checked without a server. `lease` is the longest that the
 * command takes, in ms.
 */
export function whereOf(given: PlaceOptions, lease = 0): Where {
  const target = targetOf(given);
  const { label, memory, quorum } = checkTarget(target);
  if (memory !== null) {
    throw new UsageError(`${label} ends with this command: name a server with --url`);
  }
  const { HOLDFAST_USERNAME: username, HOLDFAST_PASSWORD: password } = process.env;
  const tls = tlsOf(given);
  const options: ConnectOptions = {
    clientName: 'holdfast-cli',
    ...(quorum === null && given.longestLease === undefined
      ? {}
      : { longestLease: longest(given, lease) }),
    ...(given.prefix === undefined ? {} : { prefix: given.prefix }),
    ...(username ? { username } : {}),
    ...(password ? { password } : {}),
    ...(tls === undefined ? {} : { tls }),
  };
  return { target, options, label, source: sourceOf(given) };
}

/** How long a restarted server of a quorum has no vote; 0 if it has all its data again. */
function longest({ longestLease = LONGEST_LEASE_MS }: PlaceOptions, lease: number): number {
  return longestLease === 0 ? 0 : Math.max(longestLease, lease);
}

/** Connects, and reports warnings. Events of the connection do not matter to a short command. */
export async function open({ target, options, source }: Where): Promise<LockManager> {
  const locks = await connect(target, options).catch((error) => {
    throw withSource(error, source);
  });
  locks.on('warning', ({ message }) => say(message));
  return locks;
}

/** The error of `connect` for people at a command line: where its server was named, in place of the advice to a program. */
export function withSource(error: unknown, source: string): unknown {
  if (error instanceof Error && isUnreachable(error)) {
    error.message = `${error.message.replace(WAIT_ADVICE, '')}; ${source}`;
  }
  return error;
}

function sourceOf(given: PlaceOptions): string {
  const option = (['url', 'sentinel', 'cluster', 'quorum'] as const).find((name) => given[name]);
  if (option !== undefined) return `--${option} named it`;
  const variable = ['HOLDFAST_URL', 'REDIS_URL'].find((name) => process.env[name]);
  if (variable !== undefined) return `the variable ${variable} named it`;
  return 'no option and no variable named a server: give --url, or set HOLDFAST_URL';
}

/** Refuses a URL where the name of a lock belongs, or a pattern. */
export function lockName(text: string): string {
  if (!/^(?:redis|valkey)s?:\/\/|^unix:\/\//.test(text)) return text;
  throw new UsageError('a URL is no name of a lock: name the server with --url');
}

function targetOf({
  url,
  sentinel,
  master,
  cluster,
  quorum,
}: PlaceOptions): ConnectTarget | undefined {
  const named = Object.entries({ url, sentinel, cluster, quorum }).filter(([, each]) => each);
  if (named.length > 1) {
    const both = named.map(([option]) => `--${option}`).join(' and ');
    throw new UsageError(`${both} exclude each other: pass one of them`);
  }
  if ((sentinel === undefined) !== (master === undefined)) {
    throw new UsageError('--sentinel and --master belong together');
  }
  if (cluster !== undefined) return { cluster };
  if (quorum !== undefined) return { quorum };
  if (sentinel === undefined || master === undefined) {
    // Each command shows its server, so it needs no warning.
    return url ?? (isDefaultTarget(url) ? DEFAULT_URL : undefined);
  }
  const { HOLDFAST_SENTINEL_USERNAME: sentinelUsername } = process.env;
  const { HOLDFAST_SENTINEL_PASSWORD: sentinelPassword } = process.env;
  return {
    sentinels: sentinel,
    master,
    ...(sentinelUsername ? { sentinelUsername } : {}),
    ...(sentinelPassword ? { sentinelPassword } : {}),
  };
}

function tlsOf({ ca, cert, key }: PlaceOptions): TlsOptions | undefined {
  const files = Object.entries({ ca, cert, key }).filter(([, file]) => file !== undefined);
  if (files.length === 0) return undefined;
  return Object.fromEntries(files.map(([option, file]) => [option, read(option, file as string)]));
}

function read(option: string, file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new UsageError(`--${option}: ${(error as Error).message}`);
  }
}
