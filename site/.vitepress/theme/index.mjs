// VitePress's own theme, with the style of this site.

import DefaultTheme from 'vitepress/theme';
import './style.css';

export default DefaultTheme;
