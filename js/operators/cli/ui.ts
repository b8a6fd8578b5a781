/** `holdfast ui`: serves the page for operators. */

import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { type AddressInfo, isIP } from 'node:net';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { checkTarget } from '../../connect/check-target.js';
import type { QueryOptions } from '../../lock/options.js';
import type { LockSnapshot } from '../../lock/query.js';
import type { LockManager } from '../../manager/manager.js';
import { Access } from '../page/access.js';
import { type LockUiServer, lockUi } from '../page/index.js';
import { CliError, EXIT_CODES, Exit, say, UsageError } from './exit.js';
import {
  duration,
  open,
  type PlaceOptions,
  type Where,
  whereOf,
  whole,
  withPlace,
} from './options.js';
import { helpText, print, printJson } from './terminal.js';

interface UiOptions extends PlaceOptions {
  readonly host: string;
  readonly port: number;
  readonly allowHost: readonly string[];
  readonly allowRelease?: true;
  readonly interval: number;
}

const INTERVAL_MS = 1_000;
const INTERVAL_MS_MIN = 100;
const INTERVAL_MS_MAX = 3_600_000;
const PORT_MAX = 65_535;
const TOKEN_BYTES = 24;
const TOKEN_LENGTH_MIN = 16;
const LOOPBACK = /^(127\.|::1$|localhost$)/;

const HELP = `
It prints an address with a token: whoever opens that address sees all locks. Only this machine can reach the page, unless
--host says otherwise. HOLDFAST_UI_TOKEN, of 16 characters or more, takes the place of the token that is made at each start.

While a page is open, each look reads every key of the database: give it a longer --interval on a large one.

${EXIT_CODES}
Examples:
  holdfast ui
  holdfast ui --port 7420 --allow-release
  # behind a proxy with TLS:
  holdfast ui --host 0.0.0.0 --port 7420 --allow-host locks.example.com
`;

/** Adds the command. */
export function addUi(program: Command, end: (code: number) => void): void {
  const command = program
    .command('ui')
    .summary('serve a page that shows locks')
    .description('Serve a page that shows who holds which locks, and who waits.')
    .option('--host <address>', 'the address to listen on', '127.0.0.1')
    .option('--port <n>', 'the port to listen on; 0 for any that is free', whole(0, PORT_MAX), 0)
    .addOption(
      new Option('--allow-host <name>', 'a name by which it may be reached; one option for each')
        .argParser((name: string, before: readonly string[]) => [...before, name])
        .default([], 'none'),
    )
    .option('--allow-release', 'let the page take locks away from their holders')
    .addOption(
      new Option('--interval <time>', 'how often to look')
        .argParser(interval)
        .default(INTERVAL_MS, '1s'),
    );
  withPlace(command)
    .addHelpText('after', helpText(HELP))
    .action(async (options: UiOptions) => {
      end(await serve(options));
    });
}

function interval(text: string): number {
  const ms = duration(text);
  if (ms >= INTERVAL_MS_MIN && ms <= INTERVAL_MS_MAX) return ms;
  throw new InvalidArgumentError('Look every 100ms at most, and every 1h at least.');
}

async function serve(options: UiOptions): Promise<number> {
  const { HOLDFAST_UI_TOKEN: chosen } = process.env;
  if (chosen && chosen.length < TOKEN_LENGTH_MIN) {
    throw new UsageError(`HOLDFAST_UI_TOKEN must have ${TOKEN_LENGTH_MIN} characters or more`);
  }
  const token = chosen || randomBytes(TOKEN_BYTES).toString('base64url');
  const where = whereOf(options);
  const locks = await open(where);
  const servers = await openServers(where);
  // A user without the right to look gets the error here rather than on the page.
  if (servers.length === 0) await locks.query({ name: 'holdfast:ui' });
  const ui = lockUi({
    locks,
    servers,
    title: `Locks on ${where.label}`,
    allowRelease: options.allowRelease === true,
    interval: options.interval,
  });
  const server = createServer();
  const port = await listen(server, options);
  const access = new Access({ token, hosts: options.allowHost, port });
  server.on('request', (request, response) => {
    if (access.pass(request, response)) ui(request, response);
  });
  const ended = Promise.race(['SIGHUP', 'SIGINT', 'SIGTERM'].map((name) => once(process, name)));
  announce(options, `${addressOf(options.host, port)}/?token=${encodeURIComponent(token)}`);
  await ended;
  ui.close();
  server.close();
  server.closeAllConnections();
  await Promise.all([locks, ...servers].map((each) => each.close()));
  return Exit.Done;
}

/** The servers of a quorum, each read by itself: a quorum cannot say who holds its locks. */
async function openServers({ target, options, source }: Where): Promise<OpenServer[]> {
  const { longestLease, ...rest } = options;
  const named = typeof target === 'object' && 'quorum' in target ? target.quorum : [];
  const servers = named.map((server) => {
    const { label } = checkTarget(server);
    return new OpenServer({ target: server, options: rest, label, source });
  });
  await Promise.all(servers.map((each) => each.connect()));
  return servers;
}

/** A server that may be away while the page begins: each look tries again until it is there. */
class OpenServer implements LockUiServer {
  readonly server: string;
  readonly locks = { query: (options?: QueryOptions) => this.#query(options) };
  readonly #where: Where;
  #manager: LockManager | undefined;
  #failure: unknown;
  #connecting = false;
  #closed = false;

  constructor(where: Where) {
    this.#where = where;
    this.server = where.label;
  }

  async connect(): Promise<void> {
    this.#connecting = true;
    try {
      this.#manager = await open(this.#where);
      if (this.#closed) await this.#manager.close();
    } catch (error) {
      this.#failure = error;
    }
    this.#connecting = false;
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#manager?.close();
  }

  async #query(options?: QueryOptions): Promise<LockSnapshot> {
    if (this.#manager !== undefined) return this.#manager.query(options);
    // The other servers do not wait for this one.
    if (!this.#connecting) void this.connect();
    throw this.#failure;
  }
}

async function listen(server: Server, { host, port }: UiOptions): Promise<number> {
  try {
    server.listen({ host, port });
    await once(server, 'listening');
    return (server.address() as AddressInfo).port;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    const why = code === 'EADDRINUSE' ? 'it is taken: choose another with --port' : message;
    const place = `${host}, port ${port}`;
    throw new CliError('ERR_LISTEN', Exit.Unavailable, `cannot listen on ${place}: ${why}`);
  }
}

/** The URL that a person opens. All addresses of the machine are reached by one of them. */
function addressOf(host: string, port: number): string {
  const reached = { '0.0.0.0': '127.0.0.1', '::': '[::1]' }[host];
  const named = isIP(host) === 6 ? `[${host}]` : host;
  return `http://${reached ?? named}:${port}`;
}

function announce({ host, json, allowRelease }: UiOptions, url: string): void {
  if (json === true) printJson({ url });
  else {
    const does = allowRelease === true ? 'It can release locks.' : 'It only shows locks.';
    print(`${url}\n${does} Ctrl-C ends it.`);
  }
  if (LOOPBACK.test(host)) return;
  say('other machines can reach the page, and its token travels unencrypted: use a proxy with TLS');
}
