/** Runs the cells of an adapter: one test for each weather. */

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { before, test } from 'node:test';
import { ROOT } from '../support/child.js';
import { spawnProgram } from '../support/program.js';
import { serverOfFile } from '../support/server-of-file.js';
import { until } from '../support/wait.js';
import { judged, type Scene, Weathered } from './scene.js';
import {
  type Adapter,
  type Not,
  type Run,
  type Stopped,
  UNEXPECTED,
  WEATHERS,
  type Weather,
} from './weather.js';

/** The server of the file, for what happens to it. */
export let weathered: Weathered;

const LIMIT = { timeout: 60_000 };

/** The weathers that take seconds: `npm run test:thorough`. */
const SLOW: readonly Weather[] = ['hung', 'stopped', 'thousand'];
const QUICK = (Object.keys(WEATHERS) as Weather[]).filter((each) => !SLOW.includes(each));

/** Has each of the adapters of `file`, a module of this folder, go through the weathers that take no time. */
export function survive(file: string, adapters: readonly Adapter[]): void {
  startServer();
  for (const adapter of adapters) for (const weather of QUICK) cell(file, adapter, weather);
}

/** Has all adapters, by their modules, go through the others. */
export function surviveSlowly(table: Readonly<Record<string, readonly Adapter[]>>): void {
  startServer();
  for (const [file, adapters] of Object.entries(table)) {
    for (const adapter of adapters) for (const weather of SLOW) cell(file, adapter, weather);
  }
}

function startServer(): void {
  const server = serverOfFile({ args: ['--maxmemory-policy', 'noeviction'] });
  before(() => {
    weathered = new Weathered(server);
  });
}

function cell(file: string, { name, cells, leaves }: Adapter, weather: Weather): void {
  const title = `${name}: ${WEATHERS[weather]}`;
  const given = cells[weather];
  if (isNot(given)) {
    test(title, { skip: `makes no sense here: ${given.not}` }, () => {});
  } else if (weather === 'stopped') {
    const stopped = given as Stopped;
    test(title, LIMIT, () =>
      judged(weathered, { leaves }, (scene) => stop(scene, stopped, [file, name])),
    );
  } else if (weather === 'options') {
    for (const [what, options] of Object.entries(UNEXPECTED)) {
      test(`${title}, ${what}`, LIMIT, () => judged(weathered, { options, leaves }, given as Run));
    }
  } else test(title, LIMIT, () => judged(weathered, { leaves }, given as Run));
}

function isNot(given: object): given is Not {
  return 'not' in given;
}

/** Runs `first` in a process that stops itself when it is granted a lock, until the lease is over and `meanwhile` has run. */
async function stop(
  scene: Scene,
  { meanwhile, judge }: Stopped,
  [file, name]: readonly [string, string],
): Promise<void> {
  const program = join(ROOT, 'build', 'test', 'weather', 'stopped.js');
  const { url, name: place, options } = scene;
  const child = spawnProgram(program, file, name, JSON.stringify({ url, name: place, options }));
  scene.after(() => child.kill());
  await child.said('granted');
  await until(async () => (await weathered.held()).length === 0, 'the end of the lease');
  await meanwhile(scene);
  child.child.kill('SIGCONT');
  await child.said('returned');
  const [, returned = ''] = /^returned (.*)$/m.exec(child.output) ?? assert.fail(child.output);
  await judge(JSON.parse(returned), scene);
}
