// The tooltip.

import { el } from './elements.js';

const EDGE = 6; // px that stay free at the window's sides

/** One tooltip for the page. Lines are plain text: the first one strong. */
export const tip = {
  node: null,
  show(event, ...lines) {
    if (event.linked) return; // the pointer is on another figure, which tells
    if (!tip.node) {
      tip.node = el('div', { class: 'vv-tip', 'aria-hidden': 'true' });
      document.body.append(tip.node);
    }
    while (tip.node.childElementCount < lines.length) tip.node.append(el('div'));
    [...tip.node.children].forEach((line, i) => {
      const text = lines[i] || '';
      if (line.textContent !== text) line.textContent = text;
    });
    const [x, y, wide] = [event.clientX, event.clientY, tip.node.offsetWidth];
    const start = x > window.innerWidth * 0.6 ? x - 14 - wide : x + 14;
    const within = Math.max(EDGE, Math.min(start, window.innerWidth - EDGE - wide));
    const [down, own] = y > 110 ? [y - 12, '-100%'] : [y + 18, '0'];
    tip.node.style.transform = `translate(${within}px,${down}px) translateY(${own})`;
    tip.node.classList.add('vv-on');
  },
  hide() {
    tip.node?.classList.remove('vv-on');
  },
};
