/** `runCoordinator` of `holdfast/node-cron`. */

import assert from 'node:assert/strict';
import { runCoordinator } from 'holdfast/node-cron';
import { sleep } from '../support/wait.js';
import type { Scene } from './scene.js';
import { weathered } from './survives.js';
import { type Adapter, not } from './weather.js';
import { failureOf, many } from './web.js';

import cron = require('node-cron');

const LEASE_MS = 30_000;

async function coordinators(scene: Scene) {
  const both = [await scene.connect(), await scene.connect()] as const;
  return both.map((locks) => runCoordinator(locks)) as [Coordinator, Coordinator];
}

type Coordinator = ReturnType<typeof runCoordinator>;

export const adapters: readonly Adapter[] = [
  {
    name: 'node-cron',
    leaves: /.*/,
    cells: {
      answered: not('it answers no request'),
      left: not('node-cron waits for every answer'),
      async throws(scene) {
        const [one, other] = await coordinators(scene);
        const ran: string[] = [];
        const logger = { info() {}, warn() {}, debug() {}, error: () => {} };
        const start = (by: Coordinator) =>
          cron.schedule(
            '* * * * * *',
            ({ date }) => {
              ran.push(date.toISOString());
              throw new Error('the task failed');
            },
            { name: scene.name, distributed: true, runCoordinator: by, logger },
          );
        const tasks = [start(one), start(other)];
        await sleep(2_500);
        for (const task of tasks) await task.destroy();
        assert.ok(ran.length > 0);
        assert.equal(
          new Set(ran).size,
          ran.length,
          'a time whose task fails is taken all the same',
        );
      },
      async refused(scene) {
        const [one, other] = await coordinators(scene);
        await weathered.refuse();
        assert.match(await failureOf(() => one.shouldRun(scene.name, LEASE_MS)), /OOM/);
        await weathered.takeAgain();
        const both = [one, other].map((each) => each.shouldRun(scene.name, LEASE_MS));
        assert.deepEqual((await Promise.all(both)).sort(), [false, true]);
      },
      async hung(scene) {
        const [one, other] = await coordinators(scene);
        weathered.server.pause();
        const hung = () => one.shouldRun(scene.name, LEASE_MS);
        assert.match(await failureOf(hung), /LockConnectionError.*answer/);
        weathered.server.resume();
        // Whether its request was executed: nobody knows. Two never run.
        const both = [other, one].map((each) => each.shouldRun(`${scene.name}2`, LEASE_MS));
        assert.deepEqual((await Promise.all(both)).sort(), [false, true]);
      },
      async twice(scene) {
        const all = await coordinators(scene);
        const asked = [...all, ...all].map((each) => each.shouldRun(scene.name, LEASE_MS));
        assert.equal((await Promise.all(asked)).filter(Boolean).length, 1);
      },
      async rubbish(scene) {
        const [one] = await coordinators(scene);
        for (const ttl of [Number.NaN, undefined, '30s']) {
          const wrong = () => one.shouldRun(scene.name, ttl as never);
          assert.match(await failureOf(wrong), /ttl must be whole ms.* got NaN/);
        }
        assert.match(await failureOf(() => one.shouldRun('', LEASE_MS)), /name/);
      },
      stream: not('it has no streams'),
      stopped: not(
        'a planned time stays taken for `keep`, longer than any process can be late: no lock is held while the task runs',
      ),
      async separator(scene) {
        const [one, other] = await coordinators(scene);
        const names = [`${scene.name}:a`, `${scene.name}:a:b`, `{${scene.name}}`, 'a b/c'];
        for (const name of names) {
          const key = `${name}:2026-11-26T09:00:00.000Z`;
          assert.equal(await one.shouldRun(key, LEASE_MS), true);
          assert.equal(await other.shouldRun(key, LEASE_MS), false);
        }
      },
      async thousand(scene) {
        const all = await coordinators(scene);
        const ran = await many(1_000, async (i) => {
          const asked = all.map((each) => each.shouldRun(`${scene.name}:${i}`, LEASE_MS));
          return (await Promise.all(asked)).filter(Boolean).length;
        });
        assert.ok(ran.every((count) => count === 1));
      },
      async options(scene) {
        const [one, other] = await coordinators(scene);
        assert.equal(await one.shouldRun(scene.name, LEASE_MS), true);
        // Longer than a short maxHold.
        await sleep(500);
        assert.equal(await other.shouldRun(scene.name, LEASE_MS), false);
      },
    },
  },
];
