/** Whether two owners may write the same value. */

import type { HandLock, KeyCommand } from '../key-command.js';
import type { Fault } from '../lock.js';
import type { Node, Source } from '../source.js';

export function judgeValue(
  source: Source,
  { form, releases }: HandLock,
  acquire: KeyCommand,
): Fault[] {
  if (form === 'script' || acquire.value === undefined || releases.length === 0) return [];
  return isShared(source, acquire.value) ? [{ rule: 'value-not-unique', node: acquire.value }] : [];
}

/** Whether two callers may write the same value. */
function isShared(source: Source, given: Node): boolean {
  const node = source.resolve(given);
  if (node.type === 'Literal') return true;
  if (node.type === 'UnaryExpression') return isShared(source, node.argument);
  if (node.type === 'TemplateLiteral')
    return node.expressions.every((each) => isShared(source, each));
  if (node.type === 'MemberExpression') return source.textOf(node) === 'process.pid';
  if (node.type === 'NewExpression') return source.textOf(node.callee) === 'Date';
  if (node.type !== 'CallExpression') return false;
  const called = source.textOf(node.callee);
  if (/^(Date\.now|performance\.now|(os\.)?hostname|moment|process\.uptime)$/.test(called))
    return true;
  if (/^(String|Number|JSON\.stringify|Math\.floor)$/.test(called))
    return node.arguments.every((each) => isShared(source, each));
  if (
    /\.(toString|getTime|valueOf|toISOString|unix)$/.test(called) &&
    node.callee.type === 'MemberExpression'
  )
    return isShared(source, node.callee.object);
  return false;
}
