/**
 * The middlewares of `holdfast/idempotency` on each store: docs/idempotency.md, by what a client of the service
 * sees. The service reaches its locks and its store through the wire.
 */

import { memoryStore, redisStore } from 'holdfast/idempotency';
import { type Pay, post, SERVICES, type Service } from '../adapters/idempotency/services.js';
import { connect } from '../support/holdfast.js';
import type { Feature, Outcome, Promised, Scene, Seen } from './feature.js';
import { COMMAND_MS, clientAt, nodeRedisAt, quit, warmUp } from './holding.js';

interface Kind {
  readonly framework: 'Express' | 'Fastify';
  readonly store: 'memory' | 'ioredis' | 'node-redis';
  readonly marksEffects?: true;
  readonly recover?: true;
}

interface Client {
  readonly service: Service;
  close(): Promise<unknown>;
}

/** What a client of the service gets. */
interface Answer {
  readonly status: number;
  readonly text: string;
  readonly replayed: boolean;
}

// Express prints the errors of handlers otherwise.
process.env['NODE_ENV'] ??= 'test';

/** One store for all services of the process, as they share it. */
const inMemory = memoryStore();

async function storeOf({ store }: Kind, scene: Scene) {
  const named = { prefix: `idempotent:${scene.name}` };
  if (store === 'memory') return { store: inMemory, end: async () => {} };
  if (store === 'ioredis') {
    const client = clientAt(scene);
    return { store: redisStore(client, named), end: () => quit(client) };
  }
  const client = await nodeRedisAt(scene);
  return { store: redisStore(client, named), end: async () => client.destroy() };
}

async function open(kind: Kind, scene: Scene): Promise<Client> {
  const timeout = scene.who === 'first' ? { commandTimeout: COMMAND_MS } : {};
  // The names of locks and records are digests: these prefixes name the case.
  const prefix = `lock:${scene.name}`;
  const locks = await connect(scene.url, { prefix, ttl: scene.ttl, ...timeout });
  await warmUp(locks);
  const { store, end } = await storeOf(kind, scene);
  const { marksEffects, recover } = kind;
  const flags = { ...(marksEffects ? { marksEffects } : {}), ...(recover ? { recover } : {}) };
  const pay: Pay = async (_, idempotency) => {
    scene.note(`starts ${scene.who}`);
    if (marksEffects) await idempotency?.effects();
    // With recover the handler looks by the key what was done.
    if (!idempotency?.interrupted) scene.note(`pays ${scene.who}`);
    return { status: 201, body: { by: scene.who } };
  };
  const options = { locks, store, scope: () => scene.name, ...flags };
  const service = await SERVICES[kind.framework]?.(options, pay);
  if (service === undefined) throw new Error(`no service ${kind.framework}`);
  const close = async () => {
    // A client that is left after a failure would keep this process from its end.
    try {
      await service.close();
    } finally {
      await locks.close().finally(end);
    }
  };
  return { service, close };
}

async function send({ service }: Client, scene: Scene): Promise<Answer> {
  const answer = await post(`${service.url}/payments`, scene.name);
  const replayed = answer.headers.get('idempotency-replayed') === 'true';
  return { status: answer.status, text: answer.text, replayed };
}

const answerOf = ({ value }: Outcome) => value as Answer | undefined;
const count = ({ effects }: Seen, what: string) =>
  effects.filter((each) => each.startsWith(what)).length;

function promisesOf(kind: Kind): Readonly<Record<string, Promised<unknown>>> {
  const rerun = kind.marksEffects === true;
  return {
    'a call ends': ({ first, second, again }) =>
      [first, second, again].every(({ error }) => error?.name !== 'Never'),
    'a repeat is answered': ({ second, again }) =>
      answerOf(second) !== undefined && answerOf(again) !== undefined,
    ...(rerun
      ? {}
      : { 'the handler runs at most once': (seen: Seen) => count(seen, 'starts') <= 1 }),
    'the payment is made at most once': (seen) => count(seen, 'pays') <= 1,
    'an answer that was sent is repeated, or its outcome is told to be unknown': (seen) => {
      const sent = answerOf(seen.first);
      if (sent?.status !== 201) return true;
      // With recover the handler is asked again, and told that it was interrupted.
      if (kind.recover && seen.effects.includes('starts second')) return true;
      return [seen.second, seen.again].map(answerOf).every((each) => {
        if (each?.status === 409) return each.text.includes('nknown');
        return each?.status === 201 && each.text === sent.text;
      });
    },
    'a request that failed before its handler ran may be sent again': (seen) =>
      seen.effects.includes('starts first') ||
      // What ends a process is a crash to those that come later; and if neither try of the first write got an answer, the
      // key may be spent, as the page says.
      /^(process|manager|executed, (no answer|server away))/.test(seen.fault) ||
      answerOf(seen.second)?.status === 201,
    'no lock is left behind': ({ again, store, fault }) =>
      answerOf(again)?.text.includes('outstanding') !== true &&
      // The lease of a process that was killed may last longer than the test.
      (fault === 'process killed' || Object.keys(store).every((key) => !key.startsWith('lock:'))),
  };
}

function feature(kind: Kind): Feature<Client> {
  const flags = kind.recover
    ? ', marksEffects, recover'
    : kind.marksEffects
      ? ', marksEffects'
      : '';
  return {
    name: `Idempotency-Key: ${kind.framework}, ${kind.store}${flags}`,
    page: 'docs/idempotency.md',
    // A process that ends does so in the same way for both frameworks.
    ...(kind.framework === 'Fastify' ? { oneProcess: true } : {}),
    open: (scene) => open(kind, scene),
    close: (client) => client.close(),
    first: send,
    second: async (client, scene) => {
      // While the lease of a process that is gone lasts, the request is outstanding.
      const end = performance.now() + scene.wait;
      for (;;) {
        const answer = await send(client, scene);
        if (!answer.text.includes('outstanding') || performance.now() > end) return answer;
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    },
    promises: promisesOf(kind),
  };
}

export const features: readonly Feature[] = [
  feature({ framework: 'Express', store: 'ioredis' }),
  feature({ framework: 'Express', store: 'ioredis', marksEffects: true }),
  feature({ framework: 'Express', store: 'ioredis', marksEffects: true, recover: true }),
  feature({ framework: 'Express', store: 'node-redis' }),
  feature({ framework: 'Fastify', store: 'ioredis' }),
  feature({ framework: 'Fastify', store: 'memory' }),
];
