/** The alert rules and the dashboard in `monitoring/`, in the tools that they are for. */

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';
import type { LockManager } from 'holdfast';
import { measureLocks } from 'holdfast/prometheus';
import { Registry } from 'prom-client';
import { blocksOf } from '../docs/blocks.js';
import { runProgram } from '../docs/programs.js';
import { ROOT } from '../support/child.js';
import { fetchedFolder } from '../support/fetched.js';
import { removeFolder } from '../support/folders.js';
import { connect } from '../support/holdfast.js';
import { Prometheus, promtool } from '../support/prometheus.js';
import { RedisServer } from '../support/server.js';
import { until } from '../support/wait.js';

const RULES = join(ROOT, 'monitoring', 'alerts.yml');
const TSC = join(ROOT, 'node_modules', 'typescript', 'bin', 'tsc');
const DASHBOARD = join(ROOT, 'monitoring', 'dashboard.json');

interface Dashboard {
  readonly panels: readonly {
    readonly title: string;
    readonly targets: readonly { readonly expr: string }[];
  }[];
}

/** For each alert the series that it is about, one sample a minute, and the first minute at which it fires. */
const FIRES: Readonly<Record<string, readonly [minute: number, ...series: [string, string][]]>> = {
  HoldfastLockLost: [4, ['lost_total{reason="expired"}', '0 0 0 0 1 1 1']],
  HoldfastDisconnected: [2, ['connected', '1 0 0 0']],
  HoldfastNoLeader: [2, ['leading{lead="job"}', '1 0 0 0']],
  HoldfastUnsafe: [1, ['warnings{code="WARN_LOCK_EVICTION"}', '0 1 1']],
  HoldfastWarning: [1, ['warnings{code="WARN_LOCK_POLLING"}', '0 1 1']],
  // The last lock is acquired at 3, when the other callers begin to wait.
  HoldfastStuck: [8, ['waiting', '0 0 0 1x15'], ['acquired_total', '5 6 6 7x15']],
  HoldfastLongWait: [1, ['oldest_wait_seconds', '0 61 121 181']],
  HoldfastLongHold: [1, ['oldest_hold_seconds', '3599 3660']],
  HoldfastAbandoned: [2, ['abandoned_total', '0 0 1 1']],
  HoldfastTimeouts: [11, ['timed_out_total', '0+1x20'], ['acquired_total', '0+10x20']],
  HoldfastSlowHandOffs: [
    11,
    ['hand_off_seconds_bucket{le="0.065536"}', '0+1x20'],
    ['hand_off_seconds_bucket{le="0.524288"}', '0+10x20'],
    ['hand_off_seconds_bucket{le="+Inf"}', '0+10x20'],
  ],
};

/** The alerts of the rules, by their names. */
const alerts = readFileSync(RULES, 'utf8').matchAll(/- alert: (\w+)/g);

function inputOf([series, values]: readonly [string, string]) {
  const [name = '', labels = '}'] = series.split('{');
  const own = labels === '}' ? '' : `,${labels.slice(0, -1)}`;
  return { series: `holdfast_${name}{manager="shop",instance="a:1"${own}}`, values };
}

test('the check of the rules that docs/observability.md shows passes', async () => {
  const [check] = blocksOf('docs/observability.md').filter(({ code }) => /^promtool /.test(code));
  assert.ok(check);
  // The package itself is not among those that it needs.
  await runProgram(check, { env: {}, instead: { 'node_modules/holdfast/': '' } });
});

/** Series under which no alert fires, however long they last. */
const CALM: readonly (readonly [string, string])[] = [
  // Callers wait all the time, and get their locks.
  ['waiting', '3x30'],
  ['acquired_total', '0+1x30'],
  ['oldest_wait_seconds', '40x30'],
  ['warnings{code="WARN_LOCK_POLLING"}', '0x30'],
  ['warnings{code="WARN_LOCK_LOGIN"}', '0x30'],
  ['lost_total{reason="stolen"}', '0+1x30'],
];

/** A process that has only begun to wait, and has no past. */
const YOUNG: readonly (readonly [string, string])[] = [
  ['waiting', '_ _ _ 1 1 1 1'],
  ['acquired_total', '_ _ _ 0 0 0 0'],
];

/** Warnings, one sample a minute, and the first minute at which no alert fires any more. */
const ENDS: readonly (readonly [minute: number, series: string, values: string])[] = [
  [3, 'warnings{code="WARN_LOCK_EVICTION"}', '0 1 1 0 0'],
  [3, 'warnings{code="WARN_LOCK_POLLING"}', '0 2 1 0 0'],
  // It is over an hour after the last one; the first may come before the first sample.
  [62, 'warnings{code="WARN_LOCK_LOGIN"}', '0 1 2x80'],
  [62, 'warnings{code="WARN_LOCK_NESTED"}', '_ _ 1x80'],
];

test('every alert fires when its name says, and no minute earlier', () => {
  assert.deepEqual(Array.from(alerts, ([, name]) => name).sort(), Object.keys(FIRES).sort());
  const folder = mkdtempSync(join(tmpdir(), 'holdfast-rules-'));
  try {
    const tests = Object.entries(FIRES).map(([alertname, [minute, ...series]]) => ({
      interval: '1m',
      input_series: series.map(inputOf),
      promql_expr_test: [
        {
          expr: `count(ALERTS{alertname="${alertname}",alertstate="firing"})`,
          eval_time: `${minute}m`,
          exp_samples: [{ value: 1, labels: '{}' }],
        },
        {
          expr: 'count(ALERTS{alertstate="firing"})',
          eval_time: `${minute - 1}m`,
          exp_samples: [],
        },
      ],
    }));
    for (const series of [CALM, YOUNG]) {
      tests.push({
        interval: '1m',
        input_series: series.map(inputOf),
        promql_expr_test: [6, 12, 30].map((minute) => ({
          expr: 'count(ALERTS{alertstate="firing"})',
          eval_time: `${minute}m`,
          exp_samples: [],
        })),
      });
    }
    for (const [minute, ...series] of ENDS) {
      tests.push({
        interval: '1m',
        input_series: [inputOf(series)],
        promql_expr_test: [
          {
            expr: 'count(ALERTS{alertstate="firing"})',
            eval_time: `${minute - 1}m`,
            exp_samples: [{ value: 1, labels: '{}' }],
          },
          {
            expr: 'count(ALERTS{alertstate="firing"})',
            eval_time: `${minute}m`,
            exp_samples: [],
          },
        ],
      });
    }
    const file = join(folder, 'tests.yml');
    const suite = { rule_files: [RULES], evaluation_interval: '1m', tests };
    writeFileSync(file, JSON.stringify(suite));
    promtool('test', 'rules', file);
  } finally {
    removeFolder(folder);
  }
});

/** The buyers of the demo come to `manager` again and again, a dozen at a time, until `over`. */
async function serveBuyers(manager: LockManager, url: string, over: () => boolean): Promise<void> {
  const from = (file: string) => import(pathToFileURL(join(ROOT, 'demo', file)).href);
  const [{ serve, Shop }, { openRedis }] = [await from('shop.mjs'), await from('redis.mjs')];
  const redis = await openRedis(url);
  const visits = Array.from({ length: 12 }, (_, i) => ({ buyer: `b${i}`, after: i }));
  try {
    await new Shop(redis, 'demo:').open(1_000_000);
    while (!over()) {
      await serve(redis, manager, { visits, prefix: 'demo:', withLock: true }, () => {});
    }
  } finally {
    redis.close();
  }
}

test("the dashboard has the form of Grafana's own schema", async () => {
  const made = mkdtempSync(join(await fetchedFolder('@grafana/schema@12'), 'check-'));
  const write = (name: string, json: string) => {
    const type = "import type { Dashboard } from '@grafana/schema';\n";
    writeFileSync(join(made, name), `${type}export const dashboard: Dashboard = ${json};\n`);
    return name;
  };
  try {
    const dashboard = readFileSync(DASHBOARD, 'utf8');
    const wrong = dashboard.replace('"targets": [', '"targets": 5, "more": [');
    const files = [write('dashboard.ts', dashboard), write('wrong.ts', wrong)];
    const how = ['--noEmit', '--strict', '--skipLibCheck', '--module', 'node16'];
    const words = [TSC, ...how, ...files];
    const { stdout } = spawnSync(process.execPath, words, { cwd: made, encoding: 'utf8' });
    assert.match(stdout, /^wrong\.ts.*TS2322/);
    assert.doesNotMatch(stdout, /^dashboard\.ts/m);
  } finally {
    removeFolder(made);
  }
});

test("no panel of the dashboard is empty under the demo's load", async () => {
  const server = await RedisServer.start();
  const registry = new Registry();
  const managers = [await connect(server.url), await connect(server.url)];
  managers.forEach((manager, i) => {
    measureLocks(manager, { registry, manager: `m${i}` });
  });
  const prometheus = await Prometheus.start(() => registry.metrics());
  void managers[0]?.lead('demo', ({ signal }) => {
    return new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
  });
  const permit = await managers[0]?.acquire('api', { mode: 'shared', limit: 3 });
  let over = false;
  const load = managers.map((manager) => serveBuyers(manager, server.url, () => over));
  try {
    const { panels } = JSON.parse(readFileSync(DASHBOARD, 'utf8')) as Dashboard;
    assert.ok(panels.length >= 10);
    for (const { title, targets } of panels) {
      for (const { expr } of targets) {
        const asked = expr.replaceAll('$__rate_interval', '5s').replaceAll('$manager', '.*');
        const isFilled = async () => (await prometheus.query(asked)).some(Number.isFinite);
        await until(isFilled, `${title}: ${asked}`);
      }
    }
    // What is exported follows the conventions of Prometheus, but for the buckets of the hand-offs.
    const held = await prometheus.query('count by (manager) (holdfast_held)');
    assert.deepEqual(held, [1, 1]);
  } finally {
    over = true;
    await Promise.all(load);
    await permit?.release();
    await Promise.all(managers.map((manager) => manager.close()));
    await prometheus.stop();
    await server.stop();
  }
});
