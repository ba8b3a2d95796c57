// The tooltip.

import { el } from './elements.js';

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
    const left = event.clientX > window.innerWidth * 0.6;
    const above = event.clientY > 110;
    const [x, y] = [event.clientX + (left ? -14 : 14), event.clientY + (above ? -12 : 18)];
    const own = `translate(${left ? '-100%' : '0'},${above ? '-100%' : '0'})`;
    tip.node.style.transform = `translate(${x}px,${y}px) ${own}`;
    tip.node.classList.add('vv-on');
  },
  hide() {
    tip.node?.classList.remove('vv-on');
  },
};
