/** `@Leader` on methods of real applications, with each store. */

import assert from 'node:assert/strict';
import { afterEach, describe, test } from 'node:test';
import { Injectable, type OnApplicationBootstrap, type OnModuleDestroy } from '@nestjs/common';
import { Test, type TestingModule } from '@nestjs/testing';
import { LockManager, type Term } from 'holdfast';
import { currentLock, HoldfastModule, Leader } from 'holdfast/nest';
import { serverOfFile } from '../../support/server-of-file.js';
import { until } from '../../support/wait.js';

const server = serverOfFile();
let apps: TestingModule[] = [];

afterEach(async () => {
  await Promise.all(apps.map((app) => app.close()));
  apps = [];
});

@Injectable()
class Relay implements OnApplicationBootstrap, OnModuleDestroy {
  readonly happened: string[] = [];
  readonly terms: Term[] = [];
  failure: Error | undefined;

  onApplicationBootstrap(): void {
    this.happened.push('bootstrap');
  }

  async onModuleDestroy(): Promise<void> {
    this.happened.push('destroy');
  }

  @Leader('relay')
  async run(term: Term): Promise<void> {
    this.happened.push(`leads ${currentLock().name}`);
    this.terms.push(term);
    if (this.failure !== undefined) throw this.failure;
    await new Promise<void>((resolve) => term.signal.addEventListener('abort', () => resolve()));
    // What it does at its end takes a while.
    await new Promise((resolve) => setTimeout(resolve, 20));
    this.happened.push('ended');
  }
}

/** `error` gets the errors in Nest's log. */
async function start(
  target: string,
  provider: new () => object = Relay,
  error: (text: string) => void = () => {},
) {
  const testing = Test.createTestingModule({
    imports: [HoldfastModule.forRoot({ target })],
    providers: [provider],
  });
  const app = await testing.setLogger({ error, log() {}, warn() {} }).compile();
  await app.init();
  apps.push(app);
  return app;
}

for (const kind of ['redis', 'memory'] as const) {
  const target = () => (kind === 'redis' ? server.url : 'memory:nest-leader');

  describe(`on ${kind}:`, () => {
    test('one application leads, and the next when that one is closed, once its method has ended', async () => {
      const [first, second] = [await start(target()), await start(target())];
      const [one, other] = [first.get(Relay), second.get(Relay)];
      await until(() => one.terms.length + other.terms.length === 1, 'a leader');
      const [leads, waits] = one.terms.length === 1 ? [one, other] : [other, one];
      const leading = leads === one ? first : second;
      assert.deepEqual(leads.happened, ['bootstrap', 'leads leader:relay']);
      assert.deepEqual(waits.happened, ['bootstrap']);
      await leading.close();
      const ended = ['bootstrap', 'leads leader:relay', 'ended', 'destroy'];
      assert.deepEqual(leads.happened, ended);
      await until(() => waits.terms.length === 1, 'the next leader');
      assert.ok((waits.terms[0]?.fence ?? 0) > (leads.terms[0]?.fence ?? 0));
      await Promise.all(apps.map((app) => app.close()));
      assert.deepEqual(waits.happened, ended);
    });

    test('an error is logged, and the method is called in the next term', async () => {
      const logged: string[] = [];
      const app = await start(target(), Relay, (text) => logged.push(text));
      const relay = app.get(Relay);
      await until(() => relay.terms.length === 1, 'the first term');
      relay.failure = new Error('the disk is full');
      assert.ok(await app.get(LockManager).forceRelease('leader:relay'));
      await until(() => logged.length > 0, 'the error');
      assert.match(
        logged[0] ?? '',
        /^@Leader on Relay\.run has failed, and campaigns again: Error: the disk is full\n/,
      );
      relay.failure = undefined;
      const terms = relay.terms.length;
      await until(() => relay.terms.length > terms, 'the next term');
      await app.close();
    });
  });
}

test('wrong options end the start of the application', async () => {
  class Wrong {
    @Leader('wrong', { ttl: 1 })
    async run(): Promise<void> {}
  }
  Injectable()(Wrong);
  await assert.rejects(start('memory:', Wrong), { code: 'ERR_OUT_OF_RANGE' });
});

test('a wrong name is refused when the class is defined', () => {
  const descriptor = { value: async () => {} };
  const decorate = (name: unknown, target: object) => () =>
    Leader(name as string)(
      target,
      'run',
      descriptor as TypedPropertyDescriptor<() => Promise<void>>,
    );
  assert.throws(decorate(5, {}), { code: 'ERR_INVALID_ARG_TYPE' });
  assert.throws(decorate('x', class {}), /must be on a method of instances/);
});
