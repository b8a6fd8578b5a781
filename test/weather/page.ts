/** The page for operators, `lockUi` on Express and `fetchLockUi`. */

import assert from 'node:assert/strict';
import { request as ask, type IncomingMessage } from 'node:http';
import express, { type Request as ExpressRequest, type Response as ExpressResponse } from 'express';
import { fetchLockUi, lockUi } from 'holdfast/ui';
import type { LockManager } from '../support/holdfast.js';
import { sleep, until } from '../support/wait.js';
import type { Scene } from './scene.js';
import { weathered } from './survives.js';
import { type Adapter, type Cells, not } from './weather.js';
import { gate, many, serve, unread } from './web.js';

interface Start {
  readonly locks: LockManager;
  readonly allowRelease?: (request: never) => unknown;
  readonly ahead?: Promise<void>;
}

/** An open stream of events. */
interface Open {
  /** What has come so far. */
  text(): string;
  leave(): unknown;
}

interface Page {
  get(path: string): Promise<{ status: number; text: string }>;
  release(name: string): Promise<{ status: number; text: string }>;
  open(): Promise<Open>;
  /** The same, but nothing of it is read. */
  openUnread(): Promise<() => unknown>;
  close(): void;
}

type Framework = (scene: Scene, start: Start) => Promise<Page>;

/** The name of a lock and the id of its holders, as the page sends them. */
async function wanted(open: () => Promise<Open>, name: string): Promise<string> {
  const stream = await open();
  const found = () =>
    new RegExp(`"name":"${name}".*?"holdersId":"([^"]+)"`).exec(stream.text())?.[1];
  await until(() => found() !== undefined, `the lock ${name} on the page`);
  await stream.leave();
  return encodeURIComponent(JSON.stringify({ name, holdersId: found() }));
}

const onExpress: Framework = async (scene, { locks, allowRelease = () => true, ahead }) => {
  const app = express();
  const ui = lockUi({ locks, interval: 100, allowRelease: allowRelease as never });
  app.use((_request: ExpressRequest, response: ExpressResponse, next: () => void) => {
    void ahead?.then(() => response.status(503).json({ late: true }));
    next();
  });
  app.use('/ui', ui as never);
  app.use(
    (error: Error, _request: ExpressRequest, response: ExpressResponse, _next: unknown) =>
      void (response.headersSent || response.status(500).json({ message: error.message })),
  );
  scene.after(() => ui.close());
  const url = `${await serve(scene, app as never)}/ui`;
  const simply = async (path: string, init: RequestInit = {}) => {
    const response = await fetch(url + path, init);
    return { status: response.status, text: await response.text() };
  };
  const open = () =>
    new Promise<Open>((resolve, reject) => {
      const asked = ask(`${url}/events`, (response: IncomingMessage) => {
        let text = '';
        response.on('data', (chunk) => {
          text += chunk;
        });
        response.on('error', () => {});
        resolve({ text: () => text, leave: () => asked.destroy() });
      });
      asked.on('error', reject).end();
    });
  return {
    get: simply,
    open,
    async openUnread() {
      const socket = await unread(scene, `${url}/events`, 'GET', '');
      return () => socket.destroy();
    },
    close: () => ui.close(),
    release: async (name) =>
      simply('/release', {
        method: 'POST',
        headers: { 'holdfast-release': await wanted(open, name) },
      }),
  };
};

const byFetch: Framework = async (scene, { locks, allowRelease = () => true }) => {
  const given = { locks, interval: 100, path: '/ui', allowRelease: allowRelease as never };
  const ui = fetchLockUi(given);
  scene.after(() => ui.close());
  const simply = async (path: string, init: RequestInit = {}) => {
    // As a framework answers what its handler throws.
    const answer = await ui(new Request(`http://localhost/ui${path}`, init)).catch(
      (error: Error) => new Response(error.message, { status: 500 }),
    );
    return { status: answer.status, text: await answer.text() };
  };
  const open = async (): Promise<Open> => {
    const { body } = await ui(new Request('http://localhost/ui/events'));
    const reader = body?.getReader() ?? assert.fail('no stream');
    let text = '';
    const read = async (): Promise<void> => {
      const { done, value } = await reader.read();
      text += Buffer.from(value ?? []).toString();
      if (!done) return read();
    };
    read().catch(() => {});
    return { text: () => text, leave: () => reader.cancel() };
  };
  return {
    get: simply,
    open,
    async openUnread() {
      const { body } = await ui(new Request('http://localhost/ui/events'));
      return () => body?.cancel();
    },
    close: () => ui.close(),
    release: async (name) =>
      simply('/release', {
        method: 'POST',
        headers: { 'holdfast-release': await wanted(open, name) },
      }),
  };
};

function cellsOf(framework: Framework, kind: 'Express' | 'fetch'): Cells {
  return {
    answered:
      kind === 'fetch'
        ? not('whoever calls the function sends what it returns, or not')
        : async (scene) => {
            const [asked, go, late] = [gate(), gate(), gate()];
            const locks = await scene.connect();
            const allowRelease = async () => {
              asked.open();
              await go.opened;
              return true;
            };
            const page = await framework(scene, { locks, allowRelease, ahead: late.opened });
            const sent = page.get('/events');
            await asked.opened;
            late.open();
            assert.equal((await sent).status, 503);
            go.open();
            await sleep(20);
            // Nobody looks on: a page that nobody has costs nothing.
            const { requests } = locks.stats();
            await until(
              async () => {
                await sleep(300);
                return locks.stats().requests <= requests + 2;
              },
              'the looks to end',
              3_000,
            );
          },
    async left(scene) {
      const locks = await scene.connect();
      const page = await framework(scene, { locks });
      const { text, leave } = await page.open();
      await until(() => text().includes('event: state'), 'the state');
      await leave();
      const quiet = async () => {
        const { requests } = locks.stats();
        await sleep(400);
        return locks.stats().requests === requests;
      };
      await until(quiet, 'the looks to end');
    },
    async throws(scene) {
      const locks = await scene.connect();
      for (const allowRelease of [
        () => assert.fail('not allowed'),
        async () => assert.fail('not allowed'),
      ]) {
        const page = await framework(scene, { locks, allowRelease });
        const answer = await page.get('/events');
        assert.equal(answer.status, 500);
        assert.match(answer.text, /not allowed/);
      }
    },
    async refused(scene) {
      const locks = await scene.connect();
      const lock = await locks.acquire('held');
      const page = await framework(scene, { locks });
      await weathered.server.admin.call('ACL', 'SETUSER', 'default', '-scan');
      const { text, leave } = await page.open();
      await until(
        () => /event: failure\ndata: .*SCAN/i.test(text()),
        'the failure, with its cause',
      );
      await weathered.server.admin.call('ACL', 'SETUSER', 'default', '+scan');
      await until(() => text().includes('"name":"held"'), 'the locks');
      await leave();
      await lock.release();
    },
    async hung(scene) {
      const locks = await scene.connect({ connectTimeout: 1_000 });
      const lock = await locks.acquire('held');
      const page = await framework(scene, { locks });
      const { text, leave } = await page.open();
      await until(() => text().includes('"name":"held"'), 'the locks');
      weathered.server.pause();
      await until(
        () => /event: failure\ndata: .*no connection within/.test(text()),
        'the failure, with its cause',
      );
      weathered.server.resume();
      const [, after = ''] = text().split('event: failure');
      await until(
        () => (text().split('event: failure').at(-1) ?? after).includes('event: state'),
        'the state after it',
      );
      await leave();
      await lock.release();
    },
    async twice(scene) {
      const locks = await scene.connect();
      const page = await framework(scene, { locks });
      await locks.acquire('held');
      const both = await Promise.all([page.release('held'), page.release('held')]);
      assert.deepEqual(both.map(({ status }) => status).sort(), [200, 409]);
    },
    async rubbish(scene) {
      const locks = await scene.connect();
      for (const value of [undefined, null, 'yes', 1, {}]) {
        const page = await framework(scene, { locks, allowRelease: () => value });
        const lock = await locks.acquire('held');
        const refused = await page.release('held');
        assert.deepEqual([refused.status, lock.held], [403, true], `${value}`);
        await lock.release();
      }
    },
    async stream(scene) {
      const locks = await scene.connect();
      const page = await framework(scene, { locks });
      const leaveUnread = await page.openUnread();
      const { text, leave } = await page.open();
      await until(() => text().includes('event: state'), 'the state');
      await many(200, (i) => locks.request(`l${i}`, () => {}));
      await leaveUnread();
      await leave();
    },
    stopped: not('it holds no lock'),
    async separator(scene) {
      const locks = await scene.connect();
      const page = await framework(scene, { locks });
      for (const name of ['a:b', 'a%2Fb', '{a}:b', 'é,b']) {
        const lock = await locks.acquire(name);
        const { status, text } = await page.release(name);
        assert.deepEqual([status, text], [200, '{"released":true}'], name);
        await until(() => !lock.held, 'the holder to be told');
      }
    },
    async thousand(scene) {
      const locks = await scene.connect();
      const page = await framework(scene, { locks });
      const held = await many(1_000, (i) => locks.acquire(`${scene.name}:${i}`));
      const { text, leave } = await page.open();
      await until(() => text().includes(`"${scene.name}:999"`), 'all locks');
      await leave();
      await Promise.all(held.map((lock) => lock.release()));
      const streams: Open[] = [];
      for (let i = 0; i < 100; i++) streams.push(await page.open());
      assert.equal((await page.get('/events')).status, 503, 'the hundredth page is the last');
      for (const each of streams) await each.leave();
      await until(async () => {
        const one = await page.open();
        await until(() => one.text() !== '', 'an answer');
        await one.leave();
        return one.text().includes('event: hello');
      }, 'a place for one more');
      // A service that is loaded anew, again and again, makes one each time.
      const make = kind === 'fetch' ? fetchLockUi : lockUi;
      for (let i = 0; i < 1_000; i++) make({ locks }).close();
    },
    async options(scene) {
      const locks = await scene.connect();
      const page = await framework(scene, { locks });
      const lock = await locks.acquire('held');
      assert.equal((await page.release('held')).status, 200);
      await until(() => !lock.held, 'the holder to be told');
      await locks.request('other', () => {});
      await locks.close();
    },
  };
}

export const adapters: readonly Adapter[] = [
  { name: 'page on Express', cells: cellsOf(onExpress, 'Express') },
  { name: 'page by fetch', cells: cellsOf(byFetch, 'fetch') },
];
