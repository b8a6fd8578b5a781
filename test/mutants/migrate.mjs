/** Mistakes in `js/operators/migrate`. */

const FOLDER = 'js/operators/migrate';
const PLAN = `${FOLDER}/rewrite/plan.ts`;
const PAIRS = `${FOLDER}/rewrite/pairs.ts`;
const APART = `${FOLDER}/rewrite/apart.ts`;
const BY_HAND = `${FOLDER}/rewrite/by-hand.ts`;
const WRITE = `${FOLDER}/rewrite/write.ts`;
const CLEANUP = `${FOLDER}/find/cleanup.ts`;
const CALLBACKS = `${FOLDER}/find/callbacks.ts`;
const EXPIRIES = `${FOLDER}/find/expiries.ts`;
const MANAGER = `${FOLDER}/rewrite/manager.ts`;
const CLIENTS = `${FOLDER}/find/clients.ts`;
const SOURCE = `${FOLDER}/find/source.ts`;
const FINDER = `${FOLDER}/find/by-hand.ts`;

export default {
  tests: ['operators/migrate'],
  mistakes: [
    { file: PAIRS, was: "text: 'lock === null'", becomes: "text: 'lock === null)'" },
    { file: PLAN, was: 'result?.isWhole !== true', becomes: 'result === undefined' },
    { file: APART, was: 'UNIQUE.test(source.textOf(made))', becomes: 'true' },
    { file: BY_HAND, was: "each.script === 'extend' || ", becomes: '' },
    { file: WRITE, was: '  chmodSync(draft, mode);\n', becomes: '' },
    { file: WRITE, was: 'realpathSync(change.path)', becomes: 'change.path' },
    { file: CLEANUP, was: 'if (contains(each, take)) return false;', becomes: '' },
    { file: CLEANUP, was: ' &&\n        !isPause(call)', becomes: '' },
    { file: CLEANUP, was: "isArgument(parent, each, 'catch', 0)", becomes: 'false' },
    { file: CALLBACKS, was: ' || all.some(({ call }) => call === parent)', becomes: '' },
    { file: EXPIRIES, was: "if (node.type === 'Literal') return false;", becomes: '' },
    { file: MANAGER, was: 'imports(value.source, source) === true', becomes: 'imports === null' },
    { file: CLIENTS, was: 'returned.every(', becomes: 'returned.some(' },
    { file: SOURCE, was: 'isProgram && mayBe(sourceType, path)', becomes: 'isProgram' },
    { file: FINDER, was: '(isForEver ? 1 : 0)', becomes: '0' },
    { file: PAIRS, was: 'return isCaught ? outer : call;', becomes: 'return call;' },
  ],
};
