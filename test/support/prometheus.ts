/** Prometheus and promtool, as tests run them. */

import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { removeFolder } from './folders.js';
import { freePort } from './server.js';
import { needs } from './tools.js';
import { until } from './wait.js';

const program = needs('prometheus');

/** Runs promtool, and answers its output; fails with it. */
export function promtool(...args: readonly string[]): string {
  const { status, stdout, stderr } = spawnSync(program('promtool'), args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`promtool ${args.join(' ')}:\n${stdout}${stderr}`);
  return stdout;
}

const running = new Set<ChildProcess>();
process.once('exit', () => {
  for (const child of running) child.kill('SIGKILL');
});

/** A Prometheus that scrapes what `metrics` answers, several times a second. */
export class Prometheus {
  readonly #folder = mkdtempSync(join(tmpdir(), 'holdfast-prometheus-'));
  readonly #metrics: Server;
  #child: ChildProcess | undefined;
  #port = 0;

  private constructor(metrics: () => Promise<string>) {
    this.#metrics = createServer((_, response) => {
      void metrics().then((text) => {
        response.setHeader('content-type', 'text/plain; version=0.0.4');
        response.end(text);
      });
    });
  }

  static async start(metrics: () => Promise<string>): Promise<Prometheus> {
    const prometheus = new Prometheus(metrics);
    await prometheus.#start();
    return prometheus;
  }

  /** The values of a query now. */
  async query(expr: string): Promise<number[]> {
    const url = new URL(`http://127.0.0.1:${this.#port}/api/v1/query`);
    url.searchParams.set('query', expr);
    const answer = (await (await fetch(url)).json()) as {
      error?: string;
      data?: { result: { value: [number, string] }[] };
    };
    if (answer.data === undefined) throw new Error(`${expr}: ${answer.error}`);
    return answer.data.result.map(({ value }) => Number(value[1]));
  }

  async stop(): Promise<void> {
    const child = this.#child;
    if (child !== undefined && running.has(child)) {
      const gone = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGKILL');
      await gone;
    }
    this.#metrics.close();
    this.#metrics.closeAllConnections();
    removeFolder(this.#folder);
  }

  async #start(): Promise<void> {
    await new Promise<void>((listening) => this.#metrics.listen(0, '127.0.0.1', listening));
    const { port } = this.#metrics.address() as AddressInfo;
    const config = {
      global: { scrape_interval: '200ms', scrape_timeout: '200ms' },
      scrape_configs: [
        { job_name: 'service', static_configs: [{ targets: [`127.0.0.1:${port}`] }] },
      ],
    };
    const file = join(this.#folder, 'prometheus.yml');
    writeFileSync(file, JSON.stringify(config));
    this.#port = await freePort();
    const child = spawn(
      program('prometheus'),
      [
        `--config.file=${file}`,
        `--storage.tsdb.path=${join(this.#folder, 'data')}`,
        `--web.listen-address=127.0.0.1:${this.#port}`,
      ],
      { cwd: this.#folder, stdio: 'ignore' },
    );
    this.#child = child;
    running.add(child);
    child.once('exit', () => running.delete(child));
    await until(async () => {
      const ready = await fetch(`http://127.0.0.1:${this.#port}/-/ready`).catch(() => undefined);
      return ready?.ok === true;
    }, 'Prometheus');
  }
}
