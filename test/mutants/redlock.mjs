/** Mistakes in `js/adapters/redlock`. */

const INDEX = 'js/adapters/redlock/index.ts';

export default {
  tests: ['redlock/failures'],
  mistakes: [
    {
      file: INDEX,
      was: '    await Promise.allSettled([set, ...locks].map((each) => each.release()));\n',
      becomes: '    await set.release();\n',
    },
    {
      file: INDEX,
      was: '    await Promise.allSettled([set, ...locks].map((each) => each.release()));\n',
      becomes: '    await Promise.allSettled(locks.map((each) => each.release()));\n',
    },
    {
      file: INDEX,
      was: '    if (!held.held) throw this.#failed(resources, [], lossOf(held));\n',
      becomes: '',
    },
    {
      file: INDEX,
      was: '    } catch (error) {\n      await held.release().catch(() => {});\n      throw error;\n    }\n    if (!held.held) failure',
      becomes:
        '    } catch (error) {\n      await held.release();\n      throw error;\n    }\n    if (!held.held) failure',
    },
    {
      file: INDEX,
      was: 'if (!isUnreachable(error)) failure ??=',
      becomes: 'failure ??=',
    },
    {
      file: INDEX,
      was: 'if (!isUnreachable(error)) failure ??=',
      becomes: 'if (isUnreachable(error)) failure ??=',
    },
    {
      file: INDEX,
      was: '(await this.#attempt(names.length, settings, take)).result',
      becomes: '(await this.#attempt(names.length, this.settings, take)).result',
    },
    {
      file: 'js/adapters/redlock/connection.ts',
      was: 'ended.size * 2 >= this.#clients.length',
      becomes: 'ended.size > 0',
    },
    {
      file: 'js/adapters/redlock/by-value.ts',
      was: "if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end",
      becomes: "redis.call('PEXPIRE', KEYS[1], ARGV[2])",
    },
    {
      file: 'js/adapters/redlock/by-value.ts',
      was: '  if (stats.votesFor.size < stats.quorumSize) {\n',
      becomes: '  if (stats.votesFor.size === 0) {\n',
    },
    {
      file: 'js/adapters/redlock/by-value.ts',
      was: '  if (stats.votesFor.size < stats.quorumSize && failure !== undefined) throw failure;\n',
      becomes: '',
    },
  ],
};
