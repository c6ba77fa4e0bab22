"""The glass model as a widget: anywidget brings the page's module and the model's bytes together."""

import anywidget
import traitlets

from course_lib.live.glass import HERE, script
from course_lib.live.page import enlarged


class GlassModel(anywidget.AnyWidget):
    """What `glass` shows. packed: from `pack`; about: from `about_of`."""

    _esm = script()
    _css = f"{(HERE / 'glass.css').read_text(encoding='utf-8')}\n.glass {{ zoom: {enlarged(100)}%; }}"
    packed = traitlets.Bytes().tag(sync=True)
    about = traitlets.Dict().tag(sync=True)
