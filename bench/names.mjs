/** What the names of all locks begin with. */
export const NAMES = 'holdfast-bench:';
