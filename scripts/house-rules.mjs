// Rules of this code base that no linter knows. Each finding says what to do instead.

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

/** @type {{ files: RegExp, except?: RegExp, banned: RegExp, instead: string }[]} */
const RULES = [
  {
    files: /^src\/.*\.rs$/,
    except: /^src\/server\//,
    banned: /\bredis::/,
    instead: 'only src/server/ names the Redis client',
  },
  {
    files: /^src\/.*\.rs$/,
    except: /^src\/node\//,
    banned: /\bnapi(_derive)?::/,
    instead: 'only src/node/ names Node-API',
  },
  {
    files: /^src\/(machine\/|script|keys|token|error)/,
    banned: /\b(tokio|std::net|Mono::now|SystemTime|Instant)\b/,
    instead: 'the machine knows neither clock nor network: time is an argument',
  },
  {
    files: /^js\//,
    except: /^js\/cli\//,
    banned: /from '(commander|(\.\.?\/)+cli\/.*)'/,
    instead: 'only js/cli/ names the parser of arguments, and nothing else names js/cli/',
  },
  {
    files: /^src\/lua\//,
    banned: /loadstring|KEYS\[[^\d]|ARGV\[[^\d]/,
    instead: 'every key and argument is bound to a name, by its number',
  },
  {
    files: /\.(rs|ts|mts|mjs|lua)$/,
    except: /^scripts\/house-rules/,
    banned: /\b(FIXME|XXX|TODO)\b/,
    instead: 'finish it, or open an issue',
  },
];

const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
  encoding: 'utf8',
})
  .split('\n')
  .filter((file) => /\.(rs|ts|mts|mjs|lua)$/.test(file));

let findings = 0;
for (const file of files) {
  const lines = readFileSync(file, 'utf8').split('\n');
  for (const rule of RULES) {
    if (!rule.files.test(file) || rule.except?.test(file)) continue;
    lines.forEach((line, index) => {
      if (rule.banned.test(line)) report(file, index + 1, rule.instead);
    });
  }
}
process.exit(findings === 0 ? 0 : 1);

function report(file, line, message) {
  findings += 1;
  console.error(`${file}:${line}: ${message}`);
}
