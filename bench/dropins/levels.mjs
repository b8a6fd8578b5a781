/** The level at which all callers want one name. */
export const HOT = 'hot';
export const HOT_CALLERS = 16;
export const LEVELS = [1, 8, 64, HOT];
