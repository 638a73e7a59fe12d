"""A white card on which a picture is drawn: boxes, texts and arrows, in one palette and as SVG."""
import html
import math

WIDTH = 800
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, 'DejaVu Sans', sans-serif"
MONO = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

# Near the colours of Okabe and Ito, which colour-blind people can tell apart; tints are for areas.
INK, FAINT, RULE, GRID = "#1f2328", "#57606a", "#c4cad0", "#e2e6ea"
PAPER, LIGHT, GREY = "#ffffff", "#f8fafb", "#eef1f4"
BLUE, ORANGE, GREEN, PINK = "#0072b2", "#d55e00", "#007a59", "#a3417a"
TINTS = {BLUE: "#b9dcf2", ORANGE: "#fbd3a8", GREEN: "#b5e3d2", PINK: "#efcbdf", FAINT: GREY}


def number(x):
    return f"{x:.1f}".rstrip("0").rstrip(".")


def places(points):
    return " ".join(f"{number(x)},{number(y)}" for x, y in points)


class Picture:
    """Elements on a white card, so that it reads on dark pages too."""

    def __init__(self, height, title, subtitle):
        self.height, self.title, self.parts = height, title, []
        self.rect(1, 1, WIDTH - 2, height - 2, PAPER, RULE, 10)
        self.text(24, 34, title, 19, bold=True)
        self.text(24, 55, subtitle, 13, FAINT)

    def add(self, tag, content=None, **attributes):
        said = tag
        for name, value in attributes.items():
            if value is not None:
                value = number(value) if isinstance(value, (int, float)) else value
                said += f' {name.replace("_", "-")}="{value}"'
        self.parts.append(f"<{said}/>" if content is None else f"<{said}>{content}</{tag}>")

    def rect(self, x, y, width, height, fill, stroke=None, radius=4, dash=None):
        self.add("rect", x=x, y=y, width=width, height=height, rx=radius, fill=fill, stroke=stroke,
                 stroke_dasharray=dash)

    def text(self, x, y, text, size=12, fill=INK, anchor=None, bold=False, mono=False):
        self.add("text", html.escape(text, quote=False), x=x, y=y, font_size=size, fill=fill,
                 text_anchor=anchor, font_weight="bold" if bold else None,
                 font_family=MONO if mono else None)

    def note(self, x, y, text, anchor=None):
        self.text(x, y, text, 12, FAINT, anchor)

    def line(self, points, stroke=FAINT, width=1.5, dash=None):
        self.add("polyline", points=places(points), fill="none", stroke=stroke, stroke_width=width,
                 stroke_dasharray=dash)

    def arrow(self, points, stroke=FAINT, width=1.5, dash=None):
        """Along the points, with a head at the last one."""
        (x0, y0), (x, y) = points[-2:]
        length = math.hypot(x - x0, y - y0)
        dx, dy = (x - x0) / length, (y - y0) / length
        back = (x - 7 * dx, y - 7 * dy)
        self.line([*points[:-1], back], stroke, width, dash)
        left = (back[0] - 4 * dy, back[1] + 4 * dx)
        right = (back[0] + 4 * dy, back[1] - 4 * dx)
        self.add("polygon", points=places([(x, y), left, right]), fill=stroke)

    def box(self, x, y, width, height, text, colour=FAINT, size=12, bold=False, mono=False):
        """A tinted box with a text in its middle."""
        self.rect(x, y, width, height, TINTS[colour], colour)
        self.text(x + width / 2, y + height / 2 + size * 0.36, text, size, INK, "middle", bold,
                  mono)

    def lines(self, x, y, texts, size=12, fill=FAINT, anchor=None, step=17):
        for i, text in enumerate(texts):
            self.text(x, y + i * step, text, size, fill, anchor)

    def svg(self, description):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" '
                f'width="{WIDTH}" height="{self.height}" font-family="{FONT}" role="img">')
        title = f"<title>{html.escape(self.title)}</title>"
        description = f"<desc>{html.escape(description)}</desc>"
        return "\n".join([head, title, description, *self.parts, "</svg>\n"])
