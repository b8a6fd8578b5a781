/** Mistakes in `js/request`. */

const CALL = 'js/request/nested-call.ts';
const NESTING = 'js/request/nesting.ts';
const REQUEST = 'js/request/request.ts';

export default {
  tests: ['request/nesting'],
  mistakes: [
    // A nested request gets a lock that is lost, and fails instead of waiting for a new one.
    { file: NESTING, was: 'each.name === name && each.held', becomes: 'each.name === name' },
    { file: NESTING, was: 'if (owner !== scope.#owner) continue;', becomes: '' },
    { file: NESTING, was: '    this.#locks = undefined;\n', becomes: '' },
    {
      file: REQUEST,
      was: '    result = await scope.run(callback);\n    scope.close();',
      becomes: '    result = await scope.run(callback);',
    },
    {
      file: REQUEST,
      was: '  } catch (error) {\n    scope.close();',
      becomes: '  } catch (error) {',
    },
    {
      file: REQUEST,
      was: 'await exit(locks).catch(() => {});',
      becomes: 'await exit(locks);',
      tests: ['weather/web-locks'],
    },
    { file: REQUEST, was: 'if (lost !== undefined) throw lost;', becomes: '' },
    { file: REQUEST, was: 'lock.name, reason, result)', becomes: 'lock.name, reason)' },
    { file: REQUEST, was: "if (reason !== 'released') return", becomes: 'return' },
    { file: CALL, was: '      clearTimeout(timer);\n', becomes: '' },
    { file: CALL, was: 'const WARN_AFTER_MS = 1_000;', becomes: 'const WARN_AFTER_MS = 10_000;' },
    {
      file: CALL,
      was: "return mode === 'exclusive' || this.#share !== SHARE_EXCLUSIVE;",
      becomes: 'return true;',
    },
  ],
};
