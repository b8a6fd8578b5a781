/** A neighbour on the same server without rights to locks, which publishes forged messages about them. */

import { type ChildProcess, spawn } from 'node:child_process';
import { ROOT } from '../../support/child.js';
import { type AclUser, enrol, leastRights } from '../../support/least-rights.js';
import { RedisServer } from '../../support/server.js';
import { until } from '../../support/wait.js';
import type { Host, Where } from './place.js';
import type { ServerHost } from './servers.js';

/** Another tenant: the user of docs/operations.md, for another prefix. */
const TENANT: AclUser = {
  name: 'tenant',
  password: 'of-its-own',
  rules: leastRights().rules.map((rule) => rule.replace('lock:', 'other:')),
};

/**
 * Publishes forged messages all the time, in a process of its own, so that no blocked event loop stops it. It
 * knows only data of logs and `query`: tokens and their locks. The names of inboxes
 * are secret, and its rights tell it none: it may neither list channels nor listen to all of them.
 */
const NEIGHBOUR = `
  const { Redis } = require('ioredis');
  const [tenantUrl, adminUrl] = process.argv.slice(1);
  // A tenant may not ask for INFO.
  const options = { enableReadyCheck: false };
  const [tenant, eyes] = [tenantUrl, adminUrl].map((url) => new Redis(url, options));
  for (const each of [tenant, eyes]) each.on('error', () => {});
  const pick = (from) => from[Math.floor(Math.random() * from.length)];
  const TOKEN = /hf1\\.[^., ;+]+\\.\\d+(?:\\.[^, ;+]*)?/g;
  // token -> its lock; the latest ones are of most interest.
  const known = new Map();
  const learn = (text, lock) => {
    for (const [token] of text.matchAll(TOKEN)) {
      known.delete(token);
      known.set(token, lock);
    }
    while (known.size > 40) known.delete(known.keys().next().value);
  };
  const refused = (command) =>
    command.then(() => { throw new Error('it may look for inboxes'); }, () => {});
  async function look() {
    for (const key of await eyes.keys('*')) {
      const kind = await eyes.type(key);
      const lock = key.replace(/^\\{(.*)\\}:\\w+$/, '$1').replace(/::\\w+$/, '');
      if (kind === 'string') learn((await eyes.get(key)) ?? '', lock);
      if (kind === 'zset') learn((await eyes.zrange(key, 0, -1)).join(' '), lock);
    }
  }
  function forge() {
    const [token, lock] = pick([...known, ['hf1.nobody.1', 'lock:x']].slice(-8));
    const [, client, number] = token.split('.');
    // Also one that is about to be used.
    const who = Math.random() < 0.2 ? 'hf1.' + client + '.' + (Number(number) + 1) : token;
    const where = Math.random() < 0.1 ? 'lock:elsewhere' : lock;
    const now = Date.now() * 1_000;
    const fence = pick([0, 1, now, now + 1, now + 60_000_000, 2 ** 53 - 1]);
    const lease = pick([0, 50, 3_000, 2 ** 53 - 1]);
    const time = pick([0, now - 1_000_000, now, now + 1_000_000, 2 ** 53 - 1]);
    const grant = [who, fence, lease].join(',');
    const message = pick([
      ['stolen', who, where].join(' '),
      ['adopted', who, where].join(' '),
      [grant, time, where].join(' '),
      [[grant, grant].join(';'), time, where].join(' '),
      ['free', where].join(' '),
      pick(['', ' ', 'stolen', 'stolen ' + who, who, grant, ';,;, 1 x', '\\u0000\\uffff'.repeat(50)]),
    ]);
    const guesses = ['holdfast:inbox:' + client, 'holdfast:inbox:' + client + ':{' + lock + '}'];
    const channel = pick(['holdfast:' + client, 'holdfast:free:' + lock, ...guesses]);
    return tenant.publish(channel, message);
  }
  async function go() {
    await refused(tenant.pubsub('CHANNELS', 'holdfast:*'));
    await refused(tenant.psubscribe('holdfast:*'));
    for (let tick = 0; ; tick++) {
      try {
        if (tick % 3 === 0) await look();
        await Promise.all(Array.from({ length: 25 }, forge));
        if (tick === 0) console.log('begun');
      } catch (error) {
        if (String(error).includes('NOPERM')) throw error;
      }
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }
  go().catch((error) => {
    console.log('it may not: ' + error);
    process.exitCode = 1;
    for (const each of [tenant, eyes]) each.disconnect();
  });
`;

/** A message about a lock may have to be confirmed, which is a request. */
const WITHOUT: readonly RegExp[] = [
  /^stats: /,
  /send nothing$/,
  /nothing is sent$/,
  /without the store$/,
];

/** A server with such a neighbour on it. */
export class HauntedHost implements Host {
  readonly name: string;
  #server: RedisServer | undefined;
  #neighbour: ChildProcess | undefined;
  #said = '';

  constructor(readonly single: ServerHost) {
    this.name = `${single.name}, with a neighbour who forges messages`;
  }

  promises(title: string): boolean {
    return !WITHOUT.some((pattern) => pattern.test(title));
  }

  async start(): Promise<void> {
    this.#server = await RedisServer.start({ binary: this.single.binary });
    const tenantUrl = await enrol(this.#server, TENANT);
    const args = ['--eval', NEIGHBOUR, tenantUrl, this.#server.url];
    const neighbour = spawn(process.execPath, args, {
      cwd: ROOT,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#neighbour = neighbour;
    for (const output of [neighbour.stdout, neighbour.stderr]) {
      output.on('data', (chunk) => {
        this.#said += chunk;
      });
    }
    await until(() => this.#said.includes('begun'), 'the neighbour to begin');
  }

  next(): Where {
    return { target: this.#running.url, label: `${this.#running.url}/0` };
  }

  /** No fence may have been poisoned, and the neighbour must have gone on. */
  async quiet(): Promise<void> {
    const { admin } = this.#running;
    const end = (Date.now() + 3_600_000) * 1_000;
    for (const key of await admin.keys('*:fence')) {
      const fence = Number(await admin.get(key));
      if (!(fence < end)) throw new Error(`the counter ${key} is at ${fence}`);
    }
    if (this.#neighbour?.exitCode !== null) throw new Error(`the neighbour ended: ${this.#said}`);
    await admin.flushall();
  }

  async stop(): Promise<void> {
    this.#neighbour?.kill('SIGKILL');
    await this.#server?.stop();
  }

  get #running(): RedisServer {
    if (this.#server === undefined) throw new Error(`${this.name} does not run`);
    return this.#server;
  }
}
