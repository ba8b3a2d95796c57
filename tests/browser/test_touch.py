"""Touch targets on a phone: every control is at least 44 x 44 px, or responds on as large an area."""

from tests.browser.conftest import ready
from vitviz.views import VIEWS

# A control's size or, if larger, the extent on which it responds along the two lines through its centre.
SMALL = """(least) => {
  const controls = 'button, a[href], select, summary, textarea, label:has(input), input, [role=tab]';
  const small = [];
  for (const one of document.querySelectorAll(controls)) {
    if (one.matches('label input, [hidden] *, [inert] *, :disabled') || one.closest('p, footer')) continue;
    if (!one.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const first = one.getBoundingClientRect();
    if (!first.width || !first.height) continue;
    one.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
    const box = one.getBoundingClientRect();
    const x = box.x + box.width / 2;
    const y = box.y + box.height / 2;
    const hit = (dx, dy) => {
      const found = document.elementFromPoint(x + dx, y + dy);
      return found && (one.contains(found) || (!found.contains(one) && found.closest('label') === one));
    };
    if (!hit(0, 0)) continue; // covered, or outside of what scrolls
    const reach = (dx, dy) => {
      let steps = 0;
      while (steps < least && hit(dx * (steps + 1), dy * (steps + 1))) steps += 1;
      return steps;
    };
    const width = Math.round(Math.max(box.width, reach(1, 0) + reach(-1, 0) + 1));
    const height = Math.round(Math.max(box.height, reach(0, 1) + reach(0, -1) + 1));
    const said = `${one.tagName}.${one.className} "${one.textContent.trim().slice(0, 20)}"`;
    if (width < least || height < least) small.push(`${said} ${width}x${height}`);
  }
  return small;
}"""


def test_every_control_of_every_view_has_44_px_on_a_phone(open_page):
    page = open_page("?sample=coffee&tab=patches", 390, 844, has_touch=True, is_mobile=True)
    page.locator("#vitviz-facts .vv-unfold").click()
    small = {}
    for view in VIEWS:
        page.evaluate("(slug) => document.getElementById(`vitviz-tab-${slug}-button`).click()", view.slug)
        ready(page, view.slug)
        if view.slug == "trial":  # its table has a button for each method that is tested
            page.locator("#vitviz-trial .vv-ranking tbody tr").nth(1).wait_for()
        unfold = page.locator(f"#vitviz-{view.slug} .vv-unfold")
        if unfold.count() and unfold.first.is_visible():
            unfold.first.click()
        found = page.evaluate(SMALL, 44)
        if found:
            small[view.slug] = found
    assert small == {}
