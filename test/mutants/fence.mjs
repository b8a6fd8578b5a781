/** Mistakes in `js/fence`. */

const TRANSACTION = 'js/fence/transaction.ts';

export default {
  tests: ['fence/steps'],
  mistakes: [
    {
      file: TRANSACTION,
      was: "client.query('ROLLBACK').catch",
      becomes: 'Promise.resolve().catch',
    },
    {
      file: TRANSACTION,
      was: 'client.release(broken);',
      becomes: 'client.release();',
    },
    {
      file: TRANSACTION,
      was: "if (broken !== undefined && typeof client.destroy === 'function') client.destroy();\n    else ",
      becomes: '',
    },
    { file: TRANSACTION, was: "    client.off?.('error', ignore);\n", becomes: '' },
    { file: TRANSACTION, was: "  client.on?.('error', ignore);\n", becomes: '' },
    {
      file: TRANSACTION,
      was: "    if (committed?.command === 'ROLLBACK') throw new Error(ROLLED_BACK);\n",
      becomes: '',
    },
    { file: TRANSACTION, was: '    undo(db);\n', becomes: '' },
    { file: TRANSACTION, was: "'BEGIN IMMEDIATE'", becomes: "'BEGIN'" },
    {
      file: 'js/fence/check.ts',
      was: 'Object.keys(fences).sort()',
      becomes: 'Object.keys(fences)',
    },
    { file: 'js/fence/table.ts', was: '`${select} FOR UPDATE`', becomes: 'select' },
    {
      file: 'js/fence/http.ts',
      was: 'seen <= fenced.fence',
      becomes: 'seen < fenced.fence',
      tests: ['fence/http'],
    },
    {
      file: 'js/fence/http.ts',
      was: 'required = true,',
      becomes: 'required = false,',
      tests: ['fence/http'],
    },
  ],
};
