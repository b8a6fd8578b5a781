/** A login that changes while locks are held and waited for: open connections log in again between two steps. */

import type { BasicCredentials } from 'holdfast';
import { Redis } from 'ioredis';
import { connect, type LockManager } from '../support/holdfast.js';
import { until } from '../support/wait.js';
import type { Feature, Preparation, Scene } from './feature.js';
import { COMMAND_MS, OF_LOCKS, openManager, use, warmUp } from './holding.js';

/** The ACL user of a case. Only the second password names the case, so the steps begin with the change. */
const userOf = ({ name }: Scene) => `user-${name.replace(/\D/g, '')}`;
const FIRST = 'first-secret';
const secondOf = ({ name }: Scene) => `${name}secret`;

interface Client {
  readonly locks: LockManager;
  /** Has another password: the one before is refused from now on, and open connections log in again. */
  change(): Promise<void>;
}

async function asAdmin<T>(scene: Scene, ask: (admin: Redis) => Promise<T>): Promise<T> {
  const admin = new Redis(scene.servers['redis'] ?? '');
  try {
    return await ask(admin);
  } finally {
    admin.disconnect();
  }
}

/** How often connections have logged in again: the first login of a connection is a part of HELLO. */
async function logins(admin: Redis): Promise<number> {
  const stats = await admin.info('commandstats');
  return Number(/^cmdstat_auth:calls=(\d+)/m.exec(stats)?.[1] ?? 0);
}

/** Resolves when a connection has logged in again since `change`, or after the time that an unanswered command gets. */
async function loggedIn(scene: Scene, change: (admin: Redis) => Promise<unknown>): Promise<void> {
  await asAdmin(scene, async (admin) => {
    const before = await logins(admin);
    await change(admin);
    await until(async () => (await logins(admin)) > before, 'the login', COMMAND_MS).then(
      () => scene.note('logged in'),
      () => {},
    );
  });
}

async function open(scene: Scene): Promise<Client> {
  if (scene.who !== 'first') return { locks: await openManager(scene), change: async () => {} };
  const username = userOf(scene);
  let password = FIRST;
  let next: (given: BasicCredentials) => void = () => {};
  const credentials = {
    type: 'streaming-credentials-provider',
    subscribe: async (listener: { onNext: typeof next }) => {
      next = listener.onNext;
      return [{ username, password }, { dispose: () => {} }] as [
        BasicCredentials,
        { dispose(): void },
      ];
    },
  } as const;
  const locks = await connect(scene.url, { credentials, commandTimeout: COMMAND_MS });
  locks.on('lost', () => scene.note('lost'));
  await warmUp(locks);
  const change = async () => {
    password = secondOf(scene);
    await loggedIn(scene, async (admin) => {
      await admin.call('ACL', 'SETUSER', username, 'resetpass', `>${password}`);
      next({ username, password });
    });
  };
  return { locks, change };
}

/** The holder of a waiter's lock, which leaves as soon as the waiter has logged in again. */
interface Holder extends Preparation {
  leave(): Promise<void>;
}

async function enrol(scene: Scene): Promise<void> {
  const rules = ['reset', 'on', '~*', '&*', '+@all', `>${FIRST}`];
  await asAdmin(scene, (admin) => admin.call('ACL', 'SETUSER', userOf(scene), ...rules));
}

async function takeWhole({ locks }: Client, scene: Scene): Promise<void> {
  const lock = await locks.acquire(scene.name, { ttl: scene.ttl, wait: scene.wait });
  await use(scene, { key: `lock:${lock.name}`, token: lock.token, held: () => lock.held });
  await lock.release();
}

const common = {
  page: 'docs/connecting.md, Passwords that change',
  open,
  close: ({ locks }: Client) => locks.close(),
  promises: {
    ...OF_LOCKS,
    'an open connection logs in again': ({
      effects,
      fault,
    }: {
      effects: readonly string[];
      fault: string;
    }) => effects.includes('logged in') || fault !== 'none',
    'a held lock stays': ({ effects, fault }: { effects: readonly string[]; fault: string }) =>
      !effects.includes('lost') || fault.startsWith('process'),
  },
};

const held: Feature<Client> = {
  ...common,
  name: 'a login that changes while a lock is held',
  async prepare(scene) {
    await enrol(scene);
    return {};
  },
  async first({ locks, change }, scene) {
    const lock = await locks.acquire(scene.name, { ttl: scene.ttl, wait: 1_000 });
    const belief = { key: `lock:${lock.name}`, token: lock.token, held: () => lock.held };
    try {
      await use(scene, belief);
      await change();
      await use(scene, belief);
      await lock.extend(scene.ttl);
    } finally {
      await lock.release();
    }
  },
  second: takeWhole,
};

const awaited: Feature<Client, Holder> = {
  ...common,
  name: 'a login that changes while a lock is waited for',
  async prepare(scene) {
    await enrol(scene);
    const locks = await connect(scene.servers['redis']);
    const lock = await locks.acquire(scene.name, { ttl: 60_000 });
    const waits = async () => (await locks.query({ name: scene.name })).pending.length > 0;
    let over = false;
    const left = until(async () => over || (await waits()), 'a waiter', 60_000)
      .then(() => loggedIn(scene, async () => {}))
      .then(() => lock.release())
      .catch(() => {});
    const leave = async () => {
      over = true;
      await left;
    };
    return { leave, close: () => leave().then(() => locks.close()) };
  },
  async first({ locks, change }, scene) {
    const waiting = locks.acquire(scene.name, { ttl: scene.ttl, wait: 5_000 });
    waiting.catch(() => {});
    await until(() => locks.stats().waiting === 1, 'the wait', COMMAND_MS).catch(() => {});
    await change();
    const lock = await waiting;
    await use(scene, { key: `lock:${lock.name}`, token: lock.token, held: () => lock.held });
    await lock.release();
  },
  second: takeWhole,
};

export const features: readonly Feature[] = [held, awaited];
