// Rehearses a release on this Linux: runs the steps of .github/workflows/release.yml word for word and in their order,
// publishes into the registry of the tests, and installs from it on every platform that runs here. Nothing leaves the
// machine, and what needs macOS or Windows is named and left out. Needs root, for the file systems of the platforms.
//
//   node scripts/rehearse.mjs [--addons folder] [--workflow release] [--job name] [--once] [--skip text]
//
// It rehearses the last commit, in a checkout of its own. The addons of `--addons` stand for those that the jobs build.
// Steps whose script contains the text of a `--skip` are left out, and named. With `--once`, each job runs for the first
// entry of its matrix that can run here.

import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { installEverywhere } from './rehearsal/installed.mjs';
import { Machine } from './rehearsal/machine.mjs';
import { serverOf } from './rehearsal/servers.mjs';
import { signed } from './rehearsal/signed.mjs';
import { filled, holds, jobsOf } from './rehearsal/workflow.mjs';
import { STATEMENT } from './release/tarballs.mjs';

const ROOT = join(import.meta.dirname, '..');
const REGISTRY = join(ROOT, 'build', 'test', 'package', 'registry.js');
const REPOSITORY = 'rehearsal/holdfast';
const OF_PAGES = /^actions\/(configure-pages|upload-pages-artifact|deploy-pages)@/;
const {
  version,
  napi,
  dependencies = {},
} = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));

const { values } = parseArgs({
  options: {
    addons: { type: 'string' },
    workflow: { type: 'string', default: 'release' },
    job: { type: 'string' },
    once: { type: 'boolean', default: false },
    skip: { type: 'string', multiple: true, default: [] },
  },
});
/** What was not done as the workflow says, and why. */
const differences = [];
const registry = await startedRegistry();
const machine = new Machine(join(homedir(), '.cache', 'holdfast-rehearsal'), registry);
try {
  publishNeeds();
  if (values.addons !== undefined) provideAddons(resolve(values.addons));
  const file = join(ROOT, '.github', 'workflows', `${values.workflow}.yml`);
  const jobs = jobsOf(file).filter(({ id }) => id === (values.job ?? id));
  if (values.workflow === 'release') checkMatrix(jobs);
  for (const job of jobs) await runJob(job);
  if (registry.sent.length > 0) await checkPublished();
  for (const difference of new Set(differences)) console.log(`not as on GitHub: ${difference}`);
  console.log('✓ rehearsed');
} finally {
  await registry.stop();
}

async function startedRegistry() {
  if (!existsSync(REGISTRY)) throw new Error('the tests are not compiled: run `npm run build:js`');
  const { Registry } = await import(REGISTRY);
  const started = new Registry();
  await started.start();
  return started;
}

function provideAddons(folder) {
  const files = readdirSync(folder).filter((file) => file.endsWith('.node'));
  machine.provide(
    'addon-given',
    files.map((file) => join(folder, file)),
  );
  differences.push(`the job build: ${files.join(', ')} are those of ${folder}`);
}

/** Each platform of the package is built by one job. */
function checkMatrix(jobs) {
  const entries = jobs.find(({ id }) => id === 'build')?.entries ?? [];
  const built = entries.map(({ matrix }) => matrix.target).sort();
  if (entries.length > 0 && built.join() !== [...napi.targets].sort().join()) {
    throw new Error(`the workflow builds ${built}, and package.json names ${napi.targets}`);
  }
}

async function runJob(job) {
  let ran = false;
  for (const { matrix, os } of job.entries) {
    const name = [job.id, ...Object.values(matrix).map(String)].join(' ');
    const why = cannotRun(os, matrix);
    if (why !== undefined) {
      differences.push(`${name}: ${why}`);
      continue;
    }
    if (job.id === 'build' && values.addons !== undefined) continue;
    if (ran && values.once) {
      differences.push(`${name}: left out, as was asked`);
      continue;
    }
    ran = true;
    console.log(`━━ ${name}`);
    await runSteps(job, { matrix, github: { event_name: 'push' } }, os);
  }
}

/** Why a job cannot run here; nothing if it can. */
function cannotRun(os, { image, server, portable }) {
  if (/^(macos|windows)/.test(os)) return 'no such machine';
  // Addons for other processors are built here, and images for them run here; other jobs are not emulated.
  if (!image && !portable && processorOf(os) !== process.arch) return 'no such machine';
  if (server && serverOf(server) === undefined) return `.ci/servers has no ${server}`;
  if (!image) return undefined;
  const libc = image.endsWith('-alpine') ? 'musl' : 'gnu';
  const platform = `linux-${processorOf(os)}-${libc}`;
  const packed = readdirSync(machine.artifact('packages'));
  if (packed.some((file) => file.includes(`-addon-${platform}-`))) return undefined;
  return `no addon of ${platform} was given`;
}

function processorOf(os) {
  return os.endsWith('-arm') ? 'arm64' : 'x64';
}

async function runSteps(job, context, os) {
  const workspace = machine.workspace(job.id);
  let env = {
    ...process.env,
    ...github(),
    ...job.env,
    PATH: `${machine.path}${delimiter}${process.env.PATH}`,
    HOLDFAST_PROCESSOR: processorOf(os),
    HOLDFAST_REGISTRY: registry.url,
  };
  for (const step of job.steps.filter((each) => holds(each.if, context))) {
    if (step.uses !== undefined) {
      const inputs = Object.entries(step.with ?? {});
      const given = Object.fromEntries(inputs.map(([key, value]) => [key, filled(value, context)]));
      if (OF_PAGES.test(step.uses)) differences.push(`${step.uses}: only GitHub has Pages`);
      else env = { ...env, ...(await machine.act(step.uses, given, workspace)) };
      continue;
    }
    const own = Object.entries(step.env ?? {}).map(([key, value]) => [key, filled(value, context)]);
    const script = asHere(filled(step.run, context));
    if (values.skip.some((text) => script.includes(text))) {
      differences.push(`${script}: left out, as was asked`);
      continue;
    }
    console.log(`── ${script.trim()}`);
    await runScript(script, job.shell, workspace, { ...env, ...Object.fromEntries(own) });
    env = { ...env, ...handedOn(env.GITHUB_ENV) };
  }
}

/** What a step has written down for those after it. */
function handedOn(file) {
  const lines = existsSync(file) ? readFileSync(file, 'utf8').trimEnd().split('\n') : [];
  rmSync(file, { force: true });
  return Object.fromEntries(lines.map((line) => line.split(/=(.*)/s, 2)));
}

/** A release has all addons; here are those that this machine can build. */
function asHere(script) {
  const given = join(machine.folder, 'pack', 'addons');
  const all = existsSync(given) && readdirSync(given).length === napi.targets.length;
  if (all || !/^node scripts\/(package|release\/check)\.mjs .*--all$/.test(script)) return script;
  differences.push(`${script}: without --all`);
  return script.replace(/ --all$/, '');
}

function runScript(script, flags, cwd, env) {
  const child = spawn('bash', [...flags, '-c', script], { cwd, env, stdio: ['ignore', 1, 2] });
  return new Promise((done, failed) => {
    child.once('error', failed);
    child.once('exit', (code, signal) => {
      if (code === 0) done();
      else failed(new Error(`${script.trim()}: ended with ${code ?? signal}`));
    });
  });
}

/** What a workflow is told of itself. Not GITHUB_ACTIONS: npm would ask GitHub who it is. */
function github() {
  const sha = execFileSync('git', ['rev-parse', 'HEAD'], { cwd: ROOT, encoding: 'utf8' }).trim();
  const temporary = join(machine.folder, 'temporary');
  mkdirSync(temporary, { recursive: true });
  const ref = `refs/tags/v${version}`;
  return {
    CI: 'true',
    GITHUB_ENV: join(temporary, 'env'),
    GITHUB_EVENT_NAME: 'push',
    GITHUB_REF: ref,
    GITHUB_REF_NAME: `v${version}`,
    GITHUB_REPOSITORY: REPOSITORY,
    GITHUB_REPOSITORY_ID: '1',
    GITHUB_REPOSITORY_OWNER_ID: '1',
    GITHUB_RUN_ATTEMPT: '1',
    GITHUB_RUN_ID: '1',
    GITHUB_SERVER_URL: 'https://github.com',
    GITHUB_SHA: sha,
    GITHUB_WORKFLOW_REF: `${REPOSITORY}/.github/workflows/release.yml@${ref}`,
    RUNNER_ENVIRONMENT: 'github-hosted',
    RUNNER_TEMP: temporary,
  };
}

/** What users get is what was packed, in an order in which nobody misses an addon, and it works. */
async function checkPublished() {
  const statement = readFileSync(join(machine.artifact('packages'), STATEMENT), 'utf8');
  const { subject } = JSON.parse(statement);
  const names = subject.map(({ name }) => /^pkg:npm\/(.+)@/.exec(name)[1].replace('%40', '@'));
  if (registry.sent.join() !== names.join()) {
    throw new Error(`published ${registry.sent}, and the statement names ${names}`);
  }
  for (const [at, name] of names.entries()) {
    const { tarball } = registry.package(name);
    const sha512 = createHash('sha512').update(tarball).digest('hex');
    if (sha512 !== subject[at].digest.sha512) throw new Error(`${name} is not what was packed`);
  }
  const envelope = join(machine.folder, 'statement.dsse.json');
  writeFileSync(envelope, `${JSON.stringify(signed(statement), null, 2)}\n`);
  differences.push(`the statement was signed with a key of its own, into ${envelope}`);
  await installEverywhere(registry, names, join(machine.folder, 'installed'));
}

/** What the main package needs of npm's registry, from which the file systems of other platforms cannot fetch. */
function publishNeeds() {
  mkdirSync(machine.folder, { recursive: true });
  for (const name of Object.keys(dependencies)) {
    const cwd = join(ROOT, 'node_modules', name);
    const pack = ['pack', '--json', '--ignore-scripts', '--pack-destination', machine.folder];
    const packed = execFileSync('npm', pack, { cwd, encoding: 'utf8', stdio: 'pipe' });
    const manifest = JSON.parse(readFileSync(join(cwd, 'package.json'), 'utf8'));
    registry.publish(manifest, join(machine.folder, JSON.parse(packed)[0].filename));
  }
}
